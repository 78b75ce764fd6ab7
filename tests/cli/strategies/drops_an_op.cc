#include "braid/schedule/op_scheduler.h"

// Leaves out the first feed-forward block.
class DropsAnOp : public braid::OpScheduler {
 public:
  std::string name() const override { return "drops_an_op"; }
  void partition(braid::PartitionRules& rules) const override {
    rules.split_module("layers.*.mlp");
  }
  void schedule(braid::ScheduleContext& ctx) const override {
    for (const braid::Task& task : ctx.ready(0)) {
      if (!task.is("layers.*.mlp")) ctx.execute({task});
    }
  }
};
BRAID_STRATEGY(DropsAnOp)
