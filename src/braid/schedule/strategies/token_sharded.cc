#include "braid/schedule/strategies/token_sharded.h"

#include "braid/schedule/strategies/transfers.h"
#include "braid/schedule/strategies/turns.h"

namespace braid {
namespace {

class TokenSharded : public OpScheduler {
 public:
  std::string name() const override { return "token_sharded"; }

  LayoutRequest layout(const BatchInfo&) const override { return {.token_sharded_residual = true}; }

  void partition(PartitionRules& rules) const override {
    rules.split_func({"reduce_scatter", "add_rms_norm", "all_gather"});
    split_transfers(rules);
  }

  void schedule(ScheduleContext& ctx) const override {
    take_turns(ctx, [](const Task& task) {
      if (task.is("reduce_scatter+add_rms_norm+all_gather")) {
        return ExecuteOptions{.stream = Stream::compute,
                              .replace = "reduce_scatter_add_rms_norm_all_gather"};
      }
      return ExecuteOptions{.stream = stream_of(task)};
    });
  }
};

}  // namespace

std::unique_ptr<OpScheduler> token_sharded_strategy() {
  return std::make_unique<TokenSharded>();
}

}  // namespace braid
