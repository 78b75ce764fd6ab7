#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

// NanoFlow (OSDI 2025), as DynaFlow writes it: nano-batches in turns on three streams, so that
// matrix products, attention over the cache and communication each have the resource they bound to
// themselves.
class NanoFlow : public OpScheduler {
 public:
  std::string name() const override { return "nanoflow"; }

  void partition(PartitionRules& rules) const override {
    for (const char* kind : {"attention", "all_reduce", "all_gather", "reduce_scatter"}) {
      rules.split_func({kind});
    }
  }

  Ranges split(const BatchInfo& batch) const override { return split_tokens(batch.tokens, 2); }

  void schedule(ScheduleContext& ctx) const override {
    const auto stream_of = [](const Task& task) {
      if (task.communicates()) return Stream::comm;
      return task.is("attention") ? Stream::side : Stream::compute;
    };
    while (!ctx.done()) {
      for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
        for (const Task& task : ctx.ready(mb)) {
          ctx.execute({task}, {.stream = stream_of(task)});
        }
      }
    }
  }
};

}  // namespace

std::unique_ptr<OpScheduler> nanoflow_strategy() {
  return std::make_unique<NanoFlow>();
}

}  // namespace braid
