#pragma once

#include <list>
#include <memory>
#include <vector>

#include "braid/engine/context_key.h"
#include "braid/model/family.h"
#include "braid/parallel/experts/expert_parallel.h"
#include "braid/parallel/lowering.h"
#include "braid/parallel/sequence_parallel.h"
#include "braid/runtime/executor.h"
#include "braid/schedule/cost_model.h"
#include "braid/schedule/op_scheduler.h"
#include "braid/schedule/plan.h"

namespace braid {

class Batch;
class BatchCut;

// Shapes of KV cache and batch for every forward pass of a runner.
struct CacheShape {
  int64_t pages = 0;
  int64_t page_size = 64;
  int64_t pages_per_sequence = 0;
  DType kv_dtype = DType::f16;
  DType activations = DType::f32;  // f32 on a CPU, bf16 on a GPU
  bool apart = false;              // of a rank's own keys alone (rank_cache), else of all keys
};

// A forward pass as a verified plan, lowered and fused, not yet bound.
struct PlannedForward : Plan {
  std::vector<RankProgram> lowered;  // [ranks] before fusion: where each weight lies
};

// The logical forward pass of a model for a capacity.
using MakeForward = std::function<Program(const ForwardShape& shape)>;

// Plans forward passes of a model over ranks with tensor parallelism or, given a mesh, sequence
// parallelism. Pure but for the catalogs.
class ForwardPlanner {
 public:
  // Without a mesh `degrees` say what the ranks divide; of no ranks: all divide weights. `levels`
  // thin far keys in plan_tokens, and without a mesh in plan for keys with a prompt. Fails with
  // kInvalidArgument where the model does not divide over the ranks.
  ForwardPlanner(MakeForward model, const CacheShape& cache,
                 std::vector<const KernelCatalog*> catalogs, const Topology& topology,
                 std::optional<SequenceMesh> mesh = {}, std::optional<RankDegrees> degrees = {},
                 std::optional<KeyLevels> levels = {});

  int ranks() const { return static_cast<int>(catalogs_.size()); }
  // Ranks that divide a token's heads, or a batch's tokens.
  int ranks_of_group() const { return ranks() / layout_.groups; }
  const Topology& topology() const { return topology_; }
  const std::optional<KeyLevels>& levels() const { return levels_; }  // of prompts
  const SequenceMesh& mesh() const { return mesh_.value(); }          // needs a mesh

  // With a mesh only: a sequence's tokens and keys as the layouts say, in a single micro-batch.
  // `exact`: levels thin nothing.
  PlannedForward plan_tokens(const OpScheduler& strategy, const SequenceLayout& q,
                             const SequenceLayout& kv, const MicroBatch& micro_batch,
                             const CostModel* model = nullptr, bool exact = false) const;
  // A sequence's first tokens, all on each rank, with weights divided (divided_prompt). `exact`
  // likewise.
  PlannedForward plan_weights(const OpScheduler& strategy, const MicroBatch& micro_batch,
                              const CostModel* model = nullptr, bool exact = false) const;
  // With a mesh only: few tokens, divided as even_layout says, whose keys lie on all ranks.
  PlannedForward plan_apart(const OpScheduler& strategy, const ContextKey& key,
                            const CostModel* model = nullptr) const;
  // Windows of the model's attention, ordered by first use.
  std::vector<int64_t> windows() const { return attention_windows(logical({1, 1, 1})); }
  // With a mesh only: keys brought to rank 0 (gather_kv).
  PlannedForward plan_gather(const OpScheduler& strategy, const SequenceLayout& kv) const;

  // Without a mesh. Divides the batch as the strategy says, into `cut`, and plans for its sizes.
  PlannedForward plan(const OpScheduler& strategy, const Batch& batch, BatchCut& cut,
                      const CostModel* model = nullptr) const;
  // With a cost model the strategy may ask for prices: each micro-batch counts at its capacity, as
  // a prompt without history.
  PlannedForward plan(const OpScheduler& strategy, const LayoutRequest& layout,
                      const ContextKey& key, const CostModel* model = nullptr) const;

 private:
  Program logical(const Extents& capacity, bool every_row = false) const;
  PlannedForward plan_lowered(const OpScheduler& strategy, std::vector<RankProgram> lowered,
                              std::span<const MicroBatch> micro_batches,
                              const CostModel* model) const;

  const MakeForward model_;
  const CacheShape cache_;
  const std::vector<const KernelCatalog*> catalogs_;
  const Topology topology_;
  const std::optional<SequenceMesh> mesh_;
  const std::optional<KeyLevels> levels_;
  LayoutPlan layout_;
};

// A plan that is bound and can run.
struct BoundForward {
  ContextKey key;
  // [ranks with a part], null for another process' ranks
  std::vector<std::unique_ptr<Executor>> executors;
  // [ranks with a part] if a trace wants Programs (World::keep_plans); else empty
  std::vector<Program> programs;
  std::vector<Schedule> schedules;

  int ranks() const { return static_cast<int>(executors.size()); }
  int64_t device_bytes() const;  // graph memory: the largest rank's
};

// The most recently used plans: the newest, and others up to kCapacity in all whose graphs together
// take at most kDeviceBytes of a device. A plan lives on while anybody holds it.
class ForwardCache {
 public:
  static constexpr size_t kCapacity = 64;
  static constexpr int64_t kDeviceBytes = int64_t{1} << 30;
  static constexpr int64_t kArenaBytes = int64_t{256} << 20;

  struct Counters {
    int64_t hits = 0;
    int64_t misses = 0;
  };

  // The plan for a key, made by `make` if there is none.
  template <class Make>
  std::shared_ptr<BoundForward> get(const ContextKey& key, Make&& make) {
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if (!((*it)->key == key)) continue;
      ++counters_.hits;
      plans_.splice(plans_.begin(), plans_, it);
      return plans_.front();
    }
    ++counters_.misses;
    make_room();
    plans_.push_front(std::make_shared<BoundForward>(make()));
    return plans_.front();
  }
  // Call before binding a plan that needs `arena_bytes`. Ranks with smaller arenas then get new
  // memory, and bound plans would keep the old memory: drops those plans if they take much.
  void make_way(int64_t arena_bytes);
  const Counters& counters() const { return counters_; }
  // For each plan with a rank in this process, the most recently used first: sizes, strategy,
  // launches, and the parts of divided attention.
  std::vector<std::string> explain() const;

 private:
  void make_room();

  std::list<std::shared_ptr<BoundForward>> plans_;  // the most recently used in front
  int64_t arena_bytes_ = 0;                         // the largest so far
  Counters counters_;
};

}  // namespace braid
