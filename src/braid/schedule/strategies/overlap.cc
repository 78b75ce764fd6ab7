#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/transfers.h"

namespace braid {
namespace {

// Two micro-batches in turns: the communication of one runs under the other's computation.
class Overlap : public OpScheduler {
 public:
  std::string name() const override { return "overlap"; }

  void partition(PartitionRules& rules) const override {
    for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter"}) {
      rules.split_func({kind});
    }
    split_transfers(rules);
  }

  Ranges split(const BatchInfo& batch) const override { return split_tokens(batch.tokens, 2); }

  void schedule(ScheduleContext& ctx) const override {
    while (!ctx.done()) {
      for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
        const std::vector<Task> ready = ctx.ready(mb);
        if (!ready.empty()) ctx.execute({ready[0]}, {.stream = stream_of(ready[0])});
      }
    }
  }
};

}  // namespace

std::unique_ptr<OpScheduler> overlap_strategy() {
  return std::make_unique<Overlap>();
}

}  // namespace braid
