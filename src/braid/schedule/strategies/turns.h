#pragma once

#include "braid/schedule/op_scheduler.h"

namespace braid {

// Micro-batches by turns, a task each, with `options` for each task. A single task at a time: a
// recorded task may make an earlier task ready, which must not queue behind a later task.
template <class Options>
void take_turns(ScheduleContext& ctx, const Options& options) {
  while (!ctx.done()) {
    for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
      const std::vector<Task> ready = ctx.ready(mb);
      if (!ready.empty()) ctx.execute({ready[0]}, options(ready[0]));
    }
  }
}

}  // namespace braid
