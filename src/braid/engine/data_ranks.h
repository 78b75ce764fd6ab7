#pragma once

#include <memory>
#include <optional>

#include "braid/engine/batch_deal.h"
#include "braid/engine/strategy_choice.h"
#include "braid/engine/world.h"

namespace braid {

// Groups of ranks, each with its own sequences and KV cache. All groups take each step together
// with equal plans: token rows go to experts on all ranks, and logits come from all. The strategy
// follows the group with most tokens.
class DataRanks : public StepPlanner {
 public:
  // `degrees` of all ranks. Several strategies need `cost`. `world` outlives the planner.
  DataRanks(MakeForward model, const CacheShape& cache, const Topology& topology,
            const RankDegrees& degrees, StrategyChoice::Strategies strategies, World& world,
            const std::optional<CostModel>& cost);

  PlannedStep prepare_first(const Batch&) override { return {}; }
  PlannedStep prepare(const Batch& batch) override;
  void record() override {}
  bool loops_on_device() const override { return false; }
  void record_loop(std::span<const int32_t>, int64_t) override {}

  std::shared_ptr<BoundForward> plan_size(const StepSize&, int64_t) override {
    fail(ErrorCode::kUnsupported, "groups of ranks plan each step by its batch");
  }

  const ForwardPlanner& forward_planner() const override { return planner_; }
  std::vector<std::string> explain() const override;

 private:
  World& world_;
  const std::optional<CostModel> cost_;
  const StrategyChoice::Strategies strategies_;
  const ForwardPlanner planner_;
  std::optional<StrategyChoice> choice_;
  ForwardCache plans_;
  BatchDeal deal_;
};

}  // namespace braid
