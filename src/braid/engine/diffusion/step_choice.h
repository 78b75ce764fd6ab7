#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/engine/forward_plans.h"
#include "braid/engine/mesh_choice.h"
#include "braid/schedule/profile.h"

namespace braid {

// A user's request for ranks that divide the rows of a network's steps.
struct RankRequest {
  SequenceParallel sp;  // without a mode: the fastest mode in simulation
  Topology topology;
  std::string schedule = "sequence_parallel";  // a strategy's name, or auto: the fastest
  std::optional<Profile> profile;              // prices modes and strategies; `auto` needs it
};

// How ranks divide a step, and when its launches run.
struct StepChoice {
  SequenceMesh mesh;
  std::string schedule;
  std::vector<std::string> priced;  // a line for each candidate of `auto`
  double seconds = 0;  // simulated seconds of the priced part of a step; 0: nothing was priced
};

// The Program for a rank alone (an empty layout) or divided over ranks by `layout`: lowered, fused,
// scheduled and verified. `catalogs`: each rank's.
PlannedForward plan_network(const Program& program, const LayoutPlan& layout,
                            const std::vector<const KernelCatalog*>& catalogs,
                            const Topology& topology, const OpScheduler& strategy);

// Simulated seconds of such a plan.
double network_seconds(const Plan& planned, const CostModel& cost);

// Fails with kInvalidArgument without a legal mesh, or for `auto` without a profile. `program` is a
// step, or a part that costs ranks alike; `parts`: as in row_parallel. Kernels wait inside like
// those of `like` (null: none).
StepChoice choose_step(const RankRequest& request, int64_t heads, const Program& program,
                       const std::vector<std::vector<std::string>>& parts,
                       const KernelCatalog* like);

}  // namespace braid
