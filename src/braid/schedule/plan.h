#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braid/schedule/op_scheduler.h"

namespace braid {

// One rank's share of a plan: its Program, and the kernels that its backend would choose.
struct PlanRank {
  const Program* program = nullptr;
  const KernelCatalog* catalog = nullptr;
};

// What a Schedule is made for.
struct PlanRequest {
  std::vector<MicroBatch> micro_batches;
  Topology topology;
  // Seconds of an op of rank 0's Program in a micro-batch; may be empty.
  std::function<double(const Op& op, int micro_batch)> price;
};

// Asks the strategy once, and makes each rank's Schedule of what it said: replacements, waits,
// kernels, and one memory plan for all ranks. Verified over all ranks together (verifier.h). The
// ranks' Programs have the same ops in the same order. Fails with kInvalidArgument, naming the op,
// the micro-batch and the rule, on a strategy that is wrong, before anything runs.
std::vector<Schedule> plan(const OpScheduler& strategy, std::span<const PlanRank> ranks,
                           const PlanRequest& request);

}  // namespace braid
