#pragma once

#include <functional>
#include <vector>

#include "braid/schedule/op_scheduler.h"
#include "braid/schedule/plan.h"

namespace braid {

// Kernels, sizes and links that Schedules are made for.
struct PlanRequest {
  std::vector<const KernelCatalog*> catalogs;  // [ranks], from each rank's backend, or one for all
  std::vector<MicroBatch> micro_batches;
  Topology topology;
  // Seconds for an op in rank 0's Program in a micro-batch; may be empty.
  std::function<double(const Op& op, int micro_batch)> price;
  bool ranks_alike = false;  // each rank's operands surely have the other ranks' shapes
};

// Makes the Schedules of a plan's Programs, in place of any that the plan has. The strategy is
// asked once; each rank gets replacements, waits, kernels and groups of launches, and all ranks
// share one memory plan. The result is verified over all ranks together (verifier.h). Fails with
// kInvalidArgument, naming the op, the micro-batch and the rule, on a strategy that is wrong,
// before anything runs.
void plan_schedules(Plan& plan, const OpScheduler& strategy, const PlanRequest& request);

}  // namespace braid
