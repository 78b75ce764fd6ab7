#include <algorithm>

#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/transfers.h"

namespace braid {
namespace {

// Both passes of guidance are micro-batches of a step. Tasks of the passes alternate: each pass
// computes during the other's transfers.
class CfgPasses : public OpScheduler {
 public:
  std::string name() const override { return "cfg_passes"; }

  void partition(PartitionRules& rules) const override {
    split_transfers(rules);
    rules.split_module("pass.*");
  }

  void schedule(ScheduleContext& ctx) const override {
    std::string last;
    while (!ctx.done()) {
      const std::vector<Task> ready = ctx.ready(0);
      if (ready.empty()) continue;
      const auto other =
          std::ranges::find_if(ready, [&](const Task& task) { return pass_of(task) != last; });
      const Task& task = other == ready.end() ? ready[0] : *other;
      last = pass_of(task);
      ctx.execute({task}, {.stream = stream_of(task)});
    }
  }

 private:
  // "pass.1" of "pass.1.transformer_blocks.3".
  static std::string pass_of(const Task& task) {
    const std::string_view scope = task.partition->scope;
    return std::string(scope.substr(0, scope.find('.', sizeof("pass.") - 1)));
  }
};

}  // namespace

std::unique_ptr<OpScheduler> cfg_passes_strategy() {
  return std::make_unique<CfgPasses>();
}

}  // namespace braid
