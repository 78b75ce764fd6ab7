#pragma once

#include <optional>

#include "braid/engine/batch_cut.h"
#include "braid/engine/sequence_step.h"
#include "braid/engine/strategy_choice.h"
#include "braid/engine/world.h"

namespace braid {

// Ranks that divide the tokens of a sequence. One sequence with a token for each rank is computed
// by all ranks, and each keeps the keys of its own tokens. Rank 0 computes all other batches alone,
// by the plans that a job of one rank has: decoding above all has nothing to divide. Before such a
// batch rank 0 is given the keys of the batch's sequences that it lacks.
class SequenceRanks : public StepPlanner {
 public:
  // Several strategies need `cost`. `world` outlives the planner.
  SequenceRanks(const MakeForward& model, const CacheShape& cache, const SequenceMesh& mesh,
                StrategyChoice::Strategies strategies, World& world,
                const std::optional<CostModel>& cost);

  PlannedStep prepare_first(const Batch& batch) override;
  PlannedStep prepare(const Batch& batch) override;
  void record() override;
  void record_loop(std::span<const int32_t> pages, int64_t from) override;

  const ForwardPlanner& forward_planner() const override { return over_ranks_; }
  std::vector<std::string> explain() const override;

 private:
  // Whether all ranks compute the batch together.
  bool divided(const Batch& batch) const;
  PlannedForward plan_tokens(const ContextKey& key) const;
  const CostModel* cost() const { return cost_ ? &*cost_ : nullptr; }

  const CacheShape shape_;
  const SequenceMesh mesh_;
  const StrategyChoice::Strategies strategies_;
  World& world_;
  const std::optional<CostModel> cost_;
  const ForwardPlanner over_ranks_, on_first_;
  ForwardCache plans_;
  KvOwners owners_;
  // The step that was prepared last is one of these.
  std::optional<KvGather> gather_;    // brings keys to rank 0
  std::optional<SequenceStep> step_;  // all ranks
  const Batch* alone_ = nullptr;      // rank 0
  BatchCut cut_;
};

}  // namespace braid
