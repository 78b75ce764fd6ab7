#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/transfers.h"
#include "braid/schedule/strategies/turns.h"

namespace braid {
namespace {

// NanoFlow (OSDI 2025), in DynaFlow's form: nano-batches in turns on three streams.
// Matrix products, attention over the cache and communication each have their own
// resource.
class NanoFlow : public OpScheduler {
 public:
  std::string name() const override { return "nanoflow"; }

  void partition(PartitionRules& rules) const override {
    for (const char* kind : {"attention", "all_reduce", "all_gather", "reduce_scatter"}) {
      rules.split_func({kind});
    }
    split_transfers(rules);
  }

  Ranges split(const BatchInfo& batch) const override { return split_tokens(batch.tokens, 2); }

  void schedule(ScheduleContext& ctx) const override {
    take_turns(ctx, [](const Task& task) {
      return ExecuteOptions{.stream = task.is("attention") ? Stream::side : stream_of(task)};
    });
  }
};

}  // namespace

std::unique_ptr<OpScheduler> nanoflow_strategy() {
  return std::make_unique<NanoFlow>();
}

}  // namespace braid
