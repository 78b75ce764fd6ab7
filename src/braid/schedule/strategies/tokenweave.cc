#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/transfers.h"
#include "braid/schedule/strategies/turns.h"

namespace braid {
namespace {

constexpr int64_t kWave = 32;  // tokens: cuts fall between tiles of products

// TokenWeave (arXiv 2505.11329): the batch is cut by tokens, if need be inside a prompt. The sum
// over ranks, the residual and the norm are a single op, which reduces to token shards, normalizes
// and gathers them; each half's op runs under the other half's products.
class TokenWeave : public OpScheduler {
 public:
  std::string name() const override { return "tokenweave"; }

  LayoutRequest layout(const BatchInfo&) const override { return {.token_sharded_residual = true}; }

  void partition(PartitionRules& rules) const override {
    rules.split_func({"reduce_scatter", "add_rms_norm", "all_gather"});
    rules.split_func({"reduce_scatter"});
    rules.split_func({"all_gather"});
    split_transfers(rules);
  }

  Ranges split(const BatchInfo& batch) const override {
    return split_tokens(batch.tokens, 2, kWave, kWave);
  }

  void schedule(ScheduleContext& ctx) const override {
    take_turns(ctx, [](const Task& task) {
      const bool fuse = task.is("reduce_scatter+add_rms_norm+all_gather");
      return ExecuteOptions{.stream = fuse ? Stream::comm : stream_of(task),
                            .replace = fuse ? "reduce_scatter_add_rms_norm_all_gather" : ""};
    });
  }
};

}  // namespace

std::unique_ptr<OpScheduler> tokenweave_strategy() {
  return std::make_unique<TokenWeave>();
}

}  // namespace braid
