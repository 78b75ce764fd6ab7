#pragma once

#include <algorithm>

#include "braid/parallel/experts/exchange.h"
#include "braid/schedule/op_scheduler.h"

namespace braid::testing_schedule {

// Two halves on a single stream: rows of the second half leave under the first products of the
// first half's experts, and sums of the first half under the products of the second half's.
class JoinedHalves : public OpScheduler {
 public:
  // `joins` false: the same order, each op by itself.
  explicit JoinedHalves(bool joins = true) : joins_(joins) {}

  std::string name() const override { return "joined_halves"; }
  LayoutRequest layout(const BatchInfo&) const override { return {.token_sharded_residual = true}; }
  Ranges split(const BatchInfo& batch) const override { return split_tokens(batch.tokens, 2); }

  void partition(PartitionRules& rules) const override {
    rules.mark(kArrivalTag);
    for (const char* kind : {"dispatch", "expert_gated", "return_rows"}) rules.split_func({kind});
  }

  void schedule(ScheduleContext& ctx) const override {
    while (!ctx.done()) {
      bool moved = false;
      for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
        for (const Task& task : ctx.ready(mb)) {
          if (ctx.micro_batches() == 2 && held(task)) continue;
          ctx.execute({task});
          moved = true;
          break;
        }
      }
      if (!moved) join(ctx);
    }
  }

 private:
  static bool held(const Task& task) {
    return task.is("expert_gated") || task.is(task.micro_batch == 0 ? "return_rows" : "dispatch");
  }
  static Task held_of(ScheduleContext& ctx, int mb) {
    const std::vector<Task> ready = ctx.ready(mb);
    return *std::ranges::find_if(ready, held);
  }
  void join(ScheduleContext& ctx) const {
    const Task first = held_of(ctx, 0), second = held_of(ctx, 1);
    if (!joins_) return ctx.execute({first, second});
    if (first.is("expert_gated"))
      return ctx.execute({first, second}, {.replace = "gated_dispatch"});
    ctx.execute({second, first}, {.replace = "gated_return"});
  }

  bool joins_;
};

}  // namespace braid::testing_schedule
