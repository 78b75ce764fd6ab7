#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/transfers.h"

namespace braid {
namespace {

constexpr const char* kAttention = "layers.*.attn";
constexpr const char* kShared = "layers.*.mlp.shared";

// Dual-batch overlap (DynaFlow, table 2): both halves' attention is a single batch; then a half's
// experts run beside the other half's exchange. The first half's shared experts wait for the second
// half's way back.
class Dbo : public OpScheduler {
 public:
  std::string name() const override { return "dbo"; }

  LayoutRequest layout(const BatchInfo&) const override { return {.token_sharded_residual = true}; }

  void partition(PartitionRules& rules) const override {
    split_transfers(rules);
    for (const char* kind : {"all_gather", "reduce_scatter"}) rules.split_func({kind});
    for (const char* module : {kShared, kAttention}) rules.split_module(module);
  }

  Ranges split(const BatchInfo& batch) const override { return split_tokens(batch.tokens, 2); }

  void schedule(ScheduleContext& ctx) const override {
    while (!ctx.done()) {
      for (int mb = 0; mb < ctx.micro_batches(); ++mb) step(ctx, mb);
    }
  }

 private:
  static void step(ScheduleContext& ctx, int mb) {
    const std::vector<Task> ready = ctx.ready(mb);
    if (ready.empty()) return;
    const bool late = ready[0].is(kShared) && mb == 0 && ready.size() > 1;
    const Task& task = ready[late ? 1 : 0];
    if (!task.is(kAttention) || ctx.micro_batches() == 1) {
      return ctx.execute({task}, {.stream = stream_of(task)});
    }
    // The second half may be ready, or wait for the keys of the first.
    const std::vector<Task> other = ctx.ready(1 - mb);
    if (mb == 0 && (other.empty() || other[0].index == task.index)) {
      ctx.execute({task, ctx.twin(task, 1)});
    }
  }
};

}  // namespace

std::unique_ptr<OpScheduler> dbo_strategy() {
  return std::make_unique<Dbo>();
}

}  // namespace braid
