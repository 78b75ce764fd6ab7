#pragma once

#include <span>

#include "braid/parallel/topology.h"
#include "braid/schedule/plan.h"
#include "braid/schedule/profile.h"

namespace braid {

// The least communication that Schedules with one-sided transfers expose, in seconds: a step's time
// beyond `compute` seconds of computation on each rank, if
//   - a rank's launches run in order, each as soon as its waits have ended, and consecutive
//     transfers are asked for together;
//   - computing launches share `compute` by their FLOP, and do work whose inputs are present,
//     of earlier parts of results first;
//   - links (by LinkClass) move bytes_per_second each way, a transfer at a time, and a wait for a
//     transfer takes latency_seconds longer;
//   - stores by attention have the link for themselves;
//   - all ranks run alike, and nothing else costs anything: no launch, no meeting, and transfers
//     and computation do not slow each other down.
// No run of these Schedules is faster on such links; another Schedule of the same mode may be, down
// to mode_bound. docs/log/gpu-notes.md has the bound in closed form for each mode of attention.
// `works`: [micro-batches].
double schedule_bound(const Plan& plan, const Topology& topology, std::span<const Work> works,
                      double compute, const PerLink<LinkProfile>& links);

}  // namespace braid
