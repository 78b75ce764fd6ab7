#pragma once

#include <memory>

#include "braid/engine/requests/scheduler.h"
#include "braid/engine/runner.h"
#include "braid/engine/trace/step_times.h"

namespace braid {

class StepPlanner;

// Prices of a profile for an engine's steps: the engine's planner plans each step with the keys
// where they lie, and the simulator runs the plan. Nothing is fitted to a run. An engine on GPUs
// that plans ahead has plans of a few sizes: a step takes the smallest plan that holds it, whose
// products compute all rows. Other steps, such as thinned prompts, wait for the planner, whose time
// is measured here, and for the binding of a new plan, whose price was measured on a GPU.
class PlannedTimes final : public StepTimes {
 public:
  // Steps within `limits`, the engine's, of a runner with this configuration, which has a profile;
  // `model` outlives this. `kernels`: of GPUs that are not here; null: of the runner's devices.
  // Fails as Runner does.
  PlannedTimes(const Model& model, const RunnerConfig& config, const SchedulerConfig& limits,
               std::unique_ptr<KernelCatalog> kernels = nullptr);
  ~PlannedTimes() override;

  // Rows have pages. Steps come in the order in which they would run.
  double seconds(std::span<const TimedRow> rows) override;
  double planning() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
