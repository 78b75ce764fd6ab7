#include "braid/schedule/strategies/token_sharded.h"

#include "braid/schedule/strategies/transfers.h"
#include "braid/schedule/strategies/turns.h"

namespace braid {
namespace {

class TokenSharded : public OpScheduler {
 public:
  explicit TokenSharded(bool in_order) : in_order_(in_order) {}

  std::string name() const override { return "token_sharded"; }

  LayoutRequest layout(const BatchInfo&) const override { return {.token_sharded_residual = true}; }

  void partition(PartitionRules& rules) const override {
    rules.split_func({"reduce_scatter", "add_rms_norm", "all_gather"});
    if (!in_order_) split_transfers(rules);
  }

  void schedule(ScheduleContext& ctx) const override {
    take_turns(ctx, [this](const Task& task) {
      if (task.is("reduce_scatter+add_rms_norm+all_gather")) {
        return ExecuteOptions{.stream = Stream::compute,
                              .replace = "reduce_scatter_add_rms_norm_all_gather"};
      }
      return ExecuteOptions{.stream = in_order_ ? Stream::compute : stream_of(task)};
    });
  }

 private:
  const bool in_order_;
};

}  // namespace

std::unique_ptr<OpScheduler> token_sharded_strategy(bool in_order) {
  return std::make_unique<TokenSharded>(in_order);
}

}  // namespace braid
