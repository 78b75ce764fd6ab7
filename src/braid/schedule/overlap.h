#pragma once

#include <span>
#include <vector>

#include "braid/program/launch_time.h"
#include "braid/schedule/cost_model.h"
#include "braid/schedule/schedule.h"

namespace braid {

// When each launch of one rank ran, or would have run.
struct RankTimes {
  const Program* program = nullptr;
  const Schedule* schedule = nullptr;
  std::span<const LaunchTime> times;  // [launches]
};

// How a rank's communication and its computation met, in seconds.
//
//   communication  launches that communicate: from where they begin, waiting for other ranks
//                  included, to where they end. A fused op on the compute stream counts with its
//                  transfers alone, as the cost model prices them.
//   hidden         the part of it during which a launch that computes was running on another
//                  stream; of a fused op, what it took less than its two parts one after the other.
//   hideable       what the best order could hide: communication + computation, less the longest
//                  of all computation, all communication, and the longest chain of launches each
//                  of which reads what the one before made. An upper bound, so share() is at least
//                  what it says.
//   exposed        communication that is not hidden.
struct Overlap {
  double communication = 0;
  double hidden = 0;
  double hideable = 0;
  double computation = 0;

  double exposed() const { return communication - hidden; }
  // 0..1; nothing to hide counts as all of it hidden.
  double share() const { return hideable > 0 ? (hidden < hideable ? hidden / hideable : 1) : 1; }
  Overlap& operator+=(const Overlap& other);
  Overlap& operator/=(double n);
};

// Of any timeline, measured or simulated. `costs` of each launch split the fused ones; empty: fused
// ops count as communication altogether.
Overlap overlap_of(const RankTimes& rank, std::span<const LaunchCost> costs = {});

// "communication 4.10 ms, 3.52 ms of 3.90 ms that could be are hidden (90%), 0.58 ms exposed"
std::string to_string(const Overlap& overlap);

}  // namespace braid
