// A strategy of one's own: attention of both halves of the batch runs as one, so that its keys are
// read together; everything else takes turns, communication under the other half's computation.
#include "braid/schedule/op_scheduler.h"

namespace {

class MyStrategy : public braid::OpScheduler {
 public:
  std::string name() const override { return "my_strategy"; }

  void partition(braid::PartitionRules& rules) const override {
    rules.split_func({"attention"});
    rules.split_func({"all_reduce"});
  }

  braid::Ranges split(const braid::BatchInfo& batch) const override {
    return braid::split_tokens(batch.tokens, 2, 16);  // no half has fewer than 16 tokens
  }

  void schedule(braid::ScheduleContext& ctx) const override {
    const int last = ctx.micro_batches() - 1;
    while (!ctx.done()) {
      for (int mb = 0; mb <= last; ++mb) {
        for (const braid::Task& task : ctx.ready(mb)) {
          if (!task.is("attention")) {
            const bool sends = task.communicates();
            ctx.execute({task}, {.stream = sends ? braid::Stream::comm : braid::Stream::compute});
          } else if (mb == last) {  // both halves have come here
            last == 0 ? ctx.execute({task}) : ctx.execute({ctx.twin(task, 0), task});
          }
        }
      }
    }
  }
};

}  // namespace

BRAID_STRATEGY(MyStrategy)
