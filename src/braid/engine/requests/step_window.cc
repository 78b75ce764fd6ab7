#include "braid/engine/requests/step_window.h"

#include "braid/base/error.h"

namespace braid {

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
