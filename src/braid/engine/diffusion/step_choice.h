#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/engine/forward_plans.h"
#include "braid/engine/mesh_choice.h"
#include "braid/schedule/profile.h"

namespace braid {

// Ranks that divide the rows of a network's steps, as a user asks for them.
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
  double seconds = 0;               // of the part of a step that was priced; 0: nothing was
};

// The Program for a rank alone (an empty layout) or for ranks that `layout` divides it over:
// lowered, fused, scheduled and verified. `catalogs`: of each rank.
PlannedForward plan_network(const Program& program, const LayoutPlan& layout,
                            const std::vector<const KernelCatalog*>& catalogs,
                            const Topology& topology, const OpScheduler& strategy);

// Simulated seconds of such a plan.
double network_seconds(const Plan& planned, const CostModel& cost);

// Fails with kInvalidArgument where no mesh is legal, and where `auto` has no profile. `program` is
// a step, or a part of it that costs ranks alike; `parts`: as of row_parallel. Kernels wait inside
// like those of `like` (null: none).
StepChoice choose_step(const RankRequest& request, int64_t heads, const Program& program,
                       const std::vector<std::vector<std::string>>& parts,
                       const KernelCatalog* like);

}  // namespace braid
