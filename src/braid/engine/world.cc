#include "braid/engine/world.h"

#include "braid/engine/forward_plans.h"

namespace braid {

std::unique_ptr<TokenLoop> World::loop(LoopRequest, const BoundForward&, const BoundForward&,
                                       StepPlanner&) {
  BRAID_CHECK(false, "these ranks sample on the host");
  return nullptr;
}

std::vector<const KernelCatalog*> World::catalogs(int ranks) {
  std::vector<const KernelCatalog*> catalogs;
  for (int r = 0; r < ranks; ++r) catalogs.push_back(&rank(r).backend().catalog());
  return catalogs;
}

std::vector<std::unique_ptr<Executor>> World::bind(PlannedForward planned, bool beside) {
  std::vector<std::unique_ptr<Executor>> executors;
  for (size_t r = 0; r < planned.programs.size(); ++r) {
    executors.push_back(rank(static_cast<int>(r))
                            .bind(planned.lowered[r], std::move(planned.programs[r]),
                                  std::move(planned.schedules[r]), beside));
  }
  return executors;
}

}  // namespace braid
