#pragma once

#include <functional>
#include <optional>

#include "braid/engine/forward_plans.h"
#include "braid/engine/sequence_step.h"
#include "braid/engine/world.h"

namespace braid {

// How ranks divide the tokens of a sequence, each with whole weights.
struct SequenceParallel {
  std::optional<SpMode> mode;  // none: the one that a simulation finds fastest
  SpRequest degrees;
  int64_t tokens = 0;  // of the prompts that it is to be fastest for; 0: as many as the cache holds
};

// The mesh that this asks for over the ranks of a topology. Without a mode, a forward pass of
// `model` over one prompt is planned for every mode and all degrees that are legal with those
// pinned, and priced by `cost`, which is needed then; kernels take stages as `takes` says. Fails
// with kInvalidArgument and the reason where none is legal.
SequenceMesh choose_mesh(const SequenceParallel& sp, const MakeForward& model, int64_t q_heads,
                         const CacheShape& cache, const Topology& topology,
                         const OpScheduler& strategy, const ops::TakesStages& takes,
                         const CostModel* cost);

// The stages of the first attention that is divided over ranks, and what runs on which stream in
// each: "layers.0.attn.ring1: side pull, compute segment_attention". None where there is none.
std::vector<std::string> attention_stages(const Program& program, const Schedule& schedule);

// What a job does with a batch where its ranks divide sequences. One sequence with a token for each
// rank is computed by all; each keeps the keys of its own tokens. Whatever else there is, decoding
// above all, has nothing to divide: rank 0 computes it alone, by the plans that a job of one rank
// has, after it was given those keys of the sequences that it lacks.
class SequenceRanks {
 public:
  // Who runs a bound plan, and what the host writes before.
  using Write = std::function<void(Executor& executor, int rank)>;
  using Run = std::function<void(BoundForward& bound, const Write& write)>;

  SequenceRanks(const MakeForward& model, const CacheShape& cache, const SequenceMesh& mesh,
                std::vector<std::shared_ptr<const OpScheduler>> strategies, World& world,
                const CostModel* cost);

  // The plan for a batch, bound, and its cut. Runs what rank 0 needs to be given before.
  std::shared_ptr<BoundForward> prepare(const Batch& batch, ForwardCache& cache, BatchCut& cut,
                                        const Run& run);
  // Gives rank 0 the keys that a batch finds, as prepare() does where rank 0 computes it.
  void gather(const Batch& batch, ForwardCache& cache, const Run& run);
  // What the host writes before the prepared batch.
  void write(const BatchCut& cut, Executor& executor, int rank) const;
  // The prepared batch was computed.
  void record(const Batch& batch);
  // Rank 0 writes the keys of a sequence from position `from` on, into these pages.
  void record_first(std::span<const int32_t> pages, int64_t from);

  const ForwardPlanner& planner() const { return over_ranks_; }

 private:
  BoundForward bind(const ContextKey& key, PlannedForward planned, bool beside = false);
  PlannedForward plan_tokens(const ContextKey& key) const;

  const CacheShape shape_;
  const SequenceMesh mesh_;
  const std::vector<std::shared_ptr<const OpScheduler>> strategies_;
  World& world_;
  const CostModel* const cost_;
  const ForwardPlanner over_ranks_, on_first_;
  KvOwners owners_;
  std::optional<SequenceStep> step_;  // where ranks compute the prepared batch together
};

}  // namespace braid
