#pragma once

#include <array>
#include <span>

#include "braid/parallel/topology.h"
#include "braid/schedule/plan.h"
#include "braid/schedule/profile.h"

namespace braid {

// The least communication that Schedules with one-sided transfers expose, in seconds: what a step
// takes beyond `compute` seconds of computation of each rank, where
//   - a rank's launches run in their order, each as soon as what it waits for has ended, and a
//     transfer behind a transfer goes with it;
//   - launches that compute share `compute` by their FLOP, and do what is there of it, early work
//     first;
//   - links (by LinkClass) move their bytes_per_second each way, a transfer at a time, and whoever
//     waits for one does so latency_seconds longer; what attention stores at peers has the link for
//     itself;
//   - all ranks run alike, and nothing else costs anything: no launch, no meeting, and transfers
//     and computation do not slow each other down.
// No run of these Schedules is faster on such links; another Schedule of the same mode may be, down
// to mode_bound. docs/sequence-parallel.md has what it comes to for each mode of attention.
// `works`: [micro-batches].
double schedule_bound(const Plan& plan, const Topology& topology, std::span<const Work> works,
                      double compute, const std::array<LinkProfile, 3>& links);

}  // namespace braid
