#include "braid/engine/requests/step_window.h"

#include "braid/base/error.h"

namespace braid {

// Of n sampling rows m have masks, a step takes s, a pause c. Tokens a second: n / (s + c) with
// pauses, (n - m / 2) / s without. The first is no less where m (s + c) >= 2 n c.
bool worth_a_pause(const StepUnderWay& newest, double step_seconds) {
  const auto m = static_cast<double>(newest.masked), n = static_cast<double>(newest.sampled);
  return m > 0 && m * (step_seconds + kPauseSeconds) >= 2 * n * kPauseSeconds;
}

void StepWindow::put(StepUnderWay step) {
  BRAID_CHECK(!full(), "a step more than {} under way", depth_);
  steps_.push_back(std::move(step));
}

StepUnderWay StepWindow::take() {
  StepUnderWay oldest = std::move(steps_.front());
  steps_.pop_front();
  return oldest;
}

}  // namespace braid
