#pragma once

#include <string>
#include <vector>

#include "braid/engine/runner.h"
#include "braid/schedule/timeline_svg.h"

namespace braid {

// A picture of a runner's steps for EngineConfig::on_step and on_loop. Each plan that ran, up to
// kMost plans, shows its last step, launch by launch. Below are steps of device loops, which
// measure no launches.
class StepPlot {
 public:
  static constexpr size_t kMost = 8;
  static constexpr size_t kLoopSteps = 64;  // the first ones are drawn

  // The runner's last step, on `ranks` ranks.
  void add(const Runner& runner, int ranks);
  // Steps of a device loop, beside the first rank's host.
  void add(const LoopStats& stats);
  bool empty() const { return plans_.empty() && device_.empty(); }
  // The picture so far.
  std::string svg() const;

 private:
  struct Rank {
    Program program;
    Schedule schedule;
    std::vector<LaunchTime> times;  // [launches]
  };
  struct Plan {
    uint64_t schedule = 0;  // hash of the first rank's
    int64_t steps = 0;
    int64_t last = 0;  // number of the kept step
    std::vector<Work> works;
    std::vector<Rank> ranks;
  };

  std::vector<Plan> plans_;
  std::vector<TraceSpan> host_, device_;
  int64_t steps_ = 0;
};

}  // namespace braid
