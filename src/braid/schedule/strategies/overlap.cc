#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/transfers.h"
#include "braid/schedule/strategies/turns.h"

namespace braid {
namespace {

// Two micro-batches in turns: the communication of each runs under the other's computation.
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
    take_turns(ctx, [](const Task& task) { return ExecuteOptions{.stream = stream_of(task)}; });
  }
};

}  // namespace

std::unique_ptr<OpScheduler> overlap_strategy() {
  return std::make_unique<Overlap>();
}

}  // namespace braid
