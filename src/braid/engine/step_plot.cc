#include "braid/engine/step_plot.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/engine/step_trace.h"

namespace braid {

void StepPlot::add(const Runner& runner, int ranks) {
  ++steps_;
  const Timeline step = measured_timeline(runner, ranks);
  if (step.ranks.empty()) return;
  const uint64_t hash = hash_of(*step.ranks[0].schedule);
  auto plan = std::ranges::find(plans_, hash, &Plan::schedule);
  if (plan == plans_.end()) {
    if (plans_.size() == kMost) return;
    Plan& fresh = plans_.emplace_back();
    fresh.schedule = hash;
    for (const RankTimes& rank : step.ranks) {
      fresh.ranks.push_back({*rank.program, *rank.schedule, {}});
    }
    plan = plans_.end() - 1;
  }
  ++plan->steps;
  plan->last = steps_;
  plan->works = step.works;
  for (size_t r = 0; r < step.ranks.size(); ++r) {
    plan->ranks[r].times.assign(step.ranks[r].times.begin(), step.ranks[r].times.end());
  }
}

void StepPlot::add(const LoopStats& stats) {
  for (size_t i = 0; i < stats.trace.size() && device_.size() < kLoopSteps; ++i) {
    const LoopStep& step = stats.trace[i];
    host_.push_back({fmt::format("enqueue {}", i + 1), step.enqueue_begin, step.enqueue_end});
    if (step.wait_end > 0) {
      host_.push_back({fmt::format("read {}", i + 1), step.wait_begin, step.wait_end});
    }
    device_.push_back({fmt::format("step {}", i + 1), step.device_begin, step.device_end});
  }
}

std::string StepPlot::svg() const {
  std::vector<Timeline> timelines;
  for (const Plan& plan : plans_) {
    int64_t tokens = 0;
    for (const Work& work : plan.works) tokens += work.extents.token;
    std::string title =
        fmt::format("step {}, measured: {} token{}", plan.last, tokens, tokens == 1 ? "" : "s");
    if (plan.steps > 1) title += fmt::format(", the last of {} with this schedule", plan.steps);
    Timeline& timeline = timelines.emplace_back(Timeline{std::move(title), {}, plan.works});
    for (const Rank& rank : plan.ranks) {
      timeline.ranks.push_back({&rank.program, &rank.schedule, rank.times});
    }
  }
  std::vector<SpanLanes> loops;
  if (!device_.empty()) {
    loops.push_back({fmt::format("{} decode steps of the device, measured", device_.size()),
                     {{"rank 0 host", host_}, {"rank 0 device", device_}}});
  }
  return timeline_svg(timelines, loops);
}

}  // namespace braid
