#pragma once

#include <memory>
#include <optional>

#include "braid/engine/batch_cut.h"
#include "braid/engine/step_planner.h"
#include "braid/engine/strategy_choice.h"
#include "braid/engine/thinned_prompts.h"
#include "braid/engine/world.h"

namespace braid {

// Ranks that divide weights: all ranks compute each batch together, by the named strategy or, among
// several, the fastest in simulation. A rank alone is a special case. With levels each rank thins
// the far keys of its heads in a step of a single sequence with enough tokens: such a step has a
// plan for its exact length, in a single micro-batch.
class TensorRanks : public StepPlanner {
 public:
  // `degrees` of a single group. Several strategies need `cost`. `world` outlives the planner.
  TensorRanks(const MakeForward& model, const CacheShape& cache, const Topology& topology,
              const RankDegrees& degrees, const std::optional<KeyLevels>& levels,
              StrategyChoice::Strategies strategies, World& world,
              const std::optional<CostModel>& cost);

  PlannedStep prepare_first(const Batch&) override { return {}; }
  PlannedStep prepare(const Batch& batch) override;
  void record() override {}
  void record_loop(std::span<const int32_t>, int64_t) override {}

  std::shared_ptr<BoundForward> plan_size(const StepSize& size, int64_t context) override;

  const ForwardPlanner& forward_planner() const override { return planner_; }
  std::optional<Approximation> approximation() const override;
  std::optional<Approximation> last_approximation() const override;
  std::vector<std::string> explain() const override;

 private:
  // A batch's inputs, and the slots of a sequence's keys by position.
  struct ThinnedStep : StepInputs {
    ThinnedStep(const BatchCut& cut, std::vector<int32_t> slots)
        : cut(cut), slots(std::move(slots)) {}
    void write(const Executor& executor, int rank) const override;
    const BatchCut& cut;
    const std::vector<int32_t> slots;
  };

  bool has_size(const Batch& batch) const override { return !thins(batch); }
  // Whether far keys are thinned: a sequence alone, with a token at least on each of the levels'
  // ranks.
  bool thins(const Batch& batch) const;
  PlannedStep prepare_thinned(const Batch& batch);
  const CostModel* cost() const { return cost_ ? &*cost_ : nullptr; }

  World& world_;
  const CacheShape cache_;
  const std::optional<CostModel> cost_;
  const StrategyChoice::Strategies strategies_;
  const ForwardPlanner planner_;
  std::optional<StrategyChoice> choice_;
  ForwardCache plans_;
  std::optional<ThinnedPrompts> thinned_;
  BatchCut cut_;
  std::optional<ThinnedStep> step_;  // the last prepared, if thinned
};

}  // namespace braid
