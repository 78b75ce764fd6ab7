#pragma once

#include <memory>
#include <optional>

#include "braid/engine/step_planner.h"
#include "braid/engine/strategy_choice.h"
#include "braid/engine/world.h"

namespace braid {

// Ranks that divide weights: all ranks compute each batch together, by the named strategy or, among
// several, the fastest in simulation. A rank alone is a special case.
class TensorRanks : public StepPlanner {
 public:
  // `degrees` of a single group. Several strategies need `cost`. `world` outlives the planner.
  TensorRanks(MakeForward model, const CacheShape& cache, const Topology& topology,
              const RankDegrees& degrees, StrategyChoice::Strategies strategies, World& world,
              const std::optional<CostModel>& cost);

  PlannedStep prepare_first(const Batch&) override { return {}; }
  PlannedStep prepare(const Batch& batch) override;
  void record() override {}
  void record_loop(std::span<const int32_t>, int64_t) override {}

  std::shared_ptr<BoundForward> plan_size(const StepSize& size, int64_t context) override;

  const ForwardPlanner& forward_planner() const override { return planner_; }
  std::vector<std::string> explain() const override;

 private:
  World& world_;
  const CacheShape cache_;
  const std::optional<CostModel> cost_;
  const StrategyChoice::Strategies strategies_;
  const ForwardPlanner planner_;
  std::optional<StrategyChoice> choice_;
  ForwardCache plans_;
  BatchCut cut_;
};

}  // namespace braid
