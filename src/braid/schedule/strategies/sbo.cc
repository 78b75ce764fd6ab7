#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/transfers.h"

namespace braid {
namespace {

// Single-batch overlap (DynaFlow, table 2): shared experts run beside the exchange of expert rows,
// their first products beside the way there, the last product beside the way back. A rank alone has
// no exchange: its shared experts run on another stream, beside the router.
class Sbo : public OpScheduler {
 public:
  std::string name() const override { return "sbo"; }

  LayoutRequest layout(const BatchInfo&) const override { return {.token_sharded_residual = true}; }

  void partition(PartitionRules& rules) const override {
    split_transfers(rules);
    for (const char* kind : {"all_gather", "reduce_scatter", "linear"}) rules.split_func({kind});
    rules.split_module("layers.*.mlp.shared");
  }

  void schedule(ScheduleContext& ctx) const override {
    const bool alone = ctx.topology().ranks() == 1;
    while (!ctx.done()) {
      const std::vector<Task> ready = ctx.ready(0);
      const auto next = std::ranges::find_if_not(
          ready, [&](const Task& task) { return !alone && task.is("linear") && shared(task); });
      const Task& task = next == ready.end() ? ready[0] : *next;
      ctx.execute({task}, {.stream = alone && shared(task) ? Stream::side : stream_of(task)});
    }
  }

 private:
  static bool shared(const Task& task) { return task.partition->scope.ends_with(".shared"); }
};

}  // namespace

std::unique_ptr<OpScheduler> sbo_strategy() {
  return std::make_unique<Sbo>();
}

}  // namespace braid
