#include "braid/engine/step_trace.h"

#include <fmt/format.h>

namespace braid {

Timeline measured_timeline(const Runner& runner, int ranks) {
  Timeline timeline{.title = "measured",
                    .ranks = {},
                    .works = {runner.last_works().begin(), runner.last_works().end()}};
  for (int r = 0; r < ranks; ++r) {
    const Runner::Step step = runner.last_step(r);
    if (step.program == nullptr) continue;  // without a part in the step
    timeline.ranks.push_back({step.program, step.schedule, step.times, step.experts});
  }
  return timeline;
}

void StepTrace::add(const Runner& runner, int ranks) {
  writer_.add(measured_timeline(runner, ranks));
}

void StepTrace::finish(const Runner& runner) {
  if (const auto made = runner.approximation()) writer_.remark("approximate", to_string(*made));
  writer_.finish();
}

void StepTrace::add(const LoopStats& stats) {
  std::vector<TraceSpan> host, device;
  for (size_t i = 0; i < stats.trace.size(); ++i) {
    const LoopStep& step = stats.trace[i];
    host.push_back({fmt::format("enqueue {}", i + 1), step.enqueue_begin, step.enqueue_end});
    if (step.wait_end > 0) {
      host.push_back({fmt::format("read {}", i + 1), step.wait_begin, step.wait_end});
    }
    device.push_back({fmt::format("step {}", i + 1), step.device_begin, step.device_end});
  }
  writer_.add(0, "host", host);
  writer_.add(0, "decode steps", device);
}

}  // namespace braid
