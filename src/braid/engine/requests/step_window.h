#pragma once

#include <deque>
#include <vector>

#include "braid/engine/requests/scheduler.h"

namespace braid {

// A step that was put in and has not been taken.
struct StepUnderWay {
  Step step;
  std::vector<int32_t> row_slots;  // [R] slot of each logits row; -1: none
  bool for_host = false;  // the host reads the step's logits, which a later step overwrites
  int64_t sampled = 0, masked = 0;  // rows that sample; of these, rows with masks
};

// Time that a device idles between two steps where the second is put in behind the end of the
// first: 0.23 ms on an H100 with 32 requests.
inline constexpr double kPauseSeconds = 0.25e-3;

// Whether a device should pause behind `newest`, so that the next step holds the requests with
// masks: without a pause these miss every second step, with a pause every step takes longer.
// Chooses the way to more tokens a second. `step_seconds`: of a step; 0: unknown.
bool worth_a_pause(const StepUnderWay& newest, double step_seconds);

// The steps under way, the oldest first. Not for several threads.
class StepWindow {
 public:
  explicit StepWindow(int depth) : depth_(depth) {}

  bool empty() const { return steps_.empty(); }
  // The step that was put in last.
  const StepUnderWay& newest() const { return steps_.back(); }
  // Whether the oldest has to be taken before another is put in.
  bool full() const {
    return static_cast<int>(steps_.size()) >= depth_ || (!empty() && steps_.back().for_host);
  }

  void put(StepUnderWay step);
  StepUnderWay take();
  // Forgets steps that never end.
  void clear() { steps_.clear(); }

 private:
  const int depth_;
  std::deque<StepUnderWay> steps_;
};

}  // namespace braid
