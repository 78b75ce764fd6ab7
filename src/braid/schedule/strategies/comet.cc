#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

// Comet (DynaFlow, table 2): the exchange of expert rows inside the experts' products, tile by tile
// as rows arrive and as results are ready.
class Comet : public OpScheduler {
 public:
  std::string name() const override { return "comet"; }

  LayoutRequest layout(const BatchInfo&) const override { return {.token_sharded_residual = true}; }

  void partition(PartitionRules& rules) const override {
    rules.split_func({"dispatch", "sync", "expert_gated"});
    rules.split_func({"expert_linear", "combine", "return_rows"});
  }

  void schedule(ScheduleContext& ctx) const override {
    while (!ctx.done()) {
      for (const Task& task : ctx.ready(0)) {
        const bool first = task.is("dispatch+sync+expert_gated");
        const bool second = task.is("expert_linear+combine+return_rows");
        ctx.execute({task}, {.replace = first ? "dispatch_gated" : second ? "linear_return" : ""});
      }
    }
  }
};

}  // namespace

std::unique_ptr<OpScheduler> comet_strategy() {
  return std::make_unique<Comet>();
}

}  // namespace braid
