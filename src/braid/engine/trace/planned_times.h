#pragma once

#include <memory>

#include "braid/engine/runner.h"
#include "braid/engine/trace/step_times.h"

namespace braid {

class StepPlanner;

// Prices of a profile for an engine's steps: the engine's planner plans each step with the keys
// where they lie, and the simulator runs the plan. Nothing is fitted to a run. Steps wait
// for the planner, as in an engine that does not plan ahead: this time is measured here.
class PlannedTimes final : public StepTimes {
 public:
  // Steps of at most `sequences` sequences of a runner with this configuration, which has a
  // profile; `model` outlives this. Fails as Runner does.
  PlannedTimes(const Model& model, const RunnerConfig& config, int64_t sequences);
  ~PlannedTimes() override;

  // Rows have pages. Steps come in the order in which they would run.
  double seconds(std::span<const TimedRow> rows) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
