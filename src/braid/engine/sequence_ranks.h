#pragma once

#include <optional>

#include "braid/engine/apart_step.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/local_step.h"
#include "braid/engine/mesh_choice.h"
#include "braid/engine/prompt_choice.h"
#include "braid/engine/sequence_step.h"
#include "braid/engine/strategy_choice.h"
#include "braid/engine/thinned_prompts.h"
#include "braid/engine/whole_step.h"
#include "braid/engine/world.h"

namespace braid {

// Ranks that divide the tokens of a sequence. All ranks together compute a single sequence with at
// least a token for each rank, and each rank keeps its tokens' keys. If `sp` names no mode,
// PromptChoice says for each length which mesh of the first ranks or all computes the prompt, that
// rank 0 does, or that all ranks compute all tokens with divided products. All other batches, above
// all decode steps, are computed in either way:
// - Keys apart, on CPUs and with SequenceParallel::apart: each rank has room for a share of the
//   keys. Queries go to the keys, and new keys to the rank with most room (ApartStep). Sequences
//   with a group stay on its rank (LocalStep).
// - Else every rank has room for all keys. Rank 0 computes the batch alone, by the plans of a job
//   with a single rank, after a step that gathers missing keys of the batch's sequences.
class SequenceRanks : public StepPlanner {
 public:
  // `meshes` come by ranks, the last over all. With `levels` prompts are computed by approximation.
  // Several strategies, and no mode, need `cost`. `world` outlives the planner.
  SequenceRanks(const MakeForward& model, const CacheShape& cache,
                const std::vector<SequenceMesh>& meshes, const SequenceParallel& sp,
                const std::optional<KeyLevels>& levels, StrategyChoice::Strategies strategies,
                World& world, const std::optional<CostModel>& cost);

  PlannedStep prepare_first(const Batch& batch) override;
  PlannedStep prepare(const Batch& batch) override;
  void record() override;
  bool loops_on_device() const override { return !apart_; }
  void record_loop(std::span<const int32_t> pages, int64_t from) override;

  std::shared_ptr<BoundForward> plan_size(const StepSize&, int64_t) override {
    fail(ErrorCode::kUnsupported, "ranks that divide a prompt do not answer many requests at once");
  }

  const ForwardPlanner& forward_planner() const override { return over_ranks(); }
  std::optional<Approximation> approximation() const override;
  std::optional<Approximation> last_approximation() const override;
  std::vector<std::string> explain() const override;

 private:
  bool thins(const Batch& batch) const { return thinned_ && !batch.exact(); }
  // PromptChoice's index for a batch with a single sequence whose keys come to the computing ranks;
  // none: the batch is computed in the other way.
  std::optional<size_t> way(const Batch& batch);
  bool has_room(int64_t tokens, int ranks) const;
  // The fewest ranks, counted from the first, that own all earlier keys of the batch's sequence.
  int ranks_with_keys(const Batch& batch) const;
  // The planner over all ranks, for steps alike in every mode.
  const ForwardPlanner& over_ranks() const { return *planners_.back(); }
  // Slots of the batch's tokens are free, all earlier ones have owners.
  void prepare_owners(const Batch& batch);
  PlannedStep prepare_prompt(const Batch& batch, size_t chosen);
  PlannedStep prepare_apart(const Batch& batch);
  PlannedStep prepare_apart(const Batch& batch, const ContextKey& key, const StepInputs& inputs,
                            const Work& work);
  int64_t pages_end(const Batch& batch) const;  // as PlannedStep has it
  PlannedForward plan_tokens(const ContextKey& key) const;
  void explain_moves(const ContextKey& key, const PlannedForward& planned);
  // A line if divided weights would decode a lone answer faster in simulation; else nothing.
  std::string faster_decode() const;
  const CostModel* cost() const { return cost_ ? &*cost_ : nullptr; }

  const MakeForward model_;
  const bool apart_;
  const CacheShape shape_;
  const int P_;
  std::optional<ThinnedPrompts> thinned_;
  const StrategyChoice::Strategies strategies_;
  World& world_;
  const std::optional<CostModel> cost_;
  PromptChoice::Planners planners_;  // without a mode: a rank alone first, then the meshes'
  std::optional<PromptChoice> choice_;
  std::optional<PromptChoice> exact_choice_;  // of a batch that is exact, where others are thinned
  const ForwardPlanner on_first_;
  const std::shared_ptr<const OpScheduler> apart_strategy_;
  const std::vector<int64_t> windows_;  // of the model's attention
  ForwardCache plans_;
  KvOwners owners_;
  HeldKeys keys_;  // if apart_
  // The last prepared step is in one of these members.
  std::optional<KvGather> gather_;    // brings keys to rank 0
  std::optional<SequenceStep> step_;  // all ranks
  std::optional<WholeStep> whole_step_;
  std::optional<ApartStep> apart_step_;
  std::optional<LocalStep> local_step_;
  const Batch* alone_ = nullptr;  // rank 0
  BatchCut cut_;
  std::vector<std::string> moves_;  // a line for each size of a prompt behind keys on several ranks
};

// Of many requests, longer prompts are divided over ranks with keys apart; others stay on a rank.
constexpr int64_t kOwnPrompt = 512;

// Pages in each rank's cache if ranks together hold the pages of `cache`.
CacheShape rank_cache(CacheShape cache, int ranks);

}  // namespace braid
