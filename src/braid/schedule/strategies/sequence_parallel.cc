#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/transfers.h"
#include "braid/schedule/strategies/turns.h"

namespace braid {
namespace {

// Sequence-parallel attention as its lowering intends: transfers inside a ring group run on the
// side stream, all others on the comm stream in the order of need, computation beside both. With
// several sequences, a micro-batch's computation fills the other's waits.
class SequenceParallel : public OpScheduler {
 public:
  std::string name() const override { return "sequence_parallel"; }

  void partition(PartitionRules& rules) const override { split_transfers(rules); }

  void schedule(ScheduleContext& ctx) const override {
    take_turns(ctx, [](const Task& task) { return ExecuteOptions{.stream = stream_of(task)}; });
  }
};

}  // namespace

std::unique_ptr<OpScheduler> sequence_parallel_strategy() {
  return std::make_unique<SequenceParallel>();
}

}  // namespace braid
