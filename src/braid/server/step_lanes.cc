#include "braid/server/step_lanes.h"

namespace braid::server {

void StepLanes::add(const Runner& runner, int ranks) {
  if (!wanted_) return;
  const auto plot = std::make_shared<StepPlot>();
  plot->add(runner, ranks);
  if (plot->empty()) return;
  wanted_ = false;
  const std::lock_guard lock(mutex_);
  last_ = plot;
}

std::string StepLanes::svg() {
  std::shared_ptr<const StepPlot> plot;
  {
    const std::lock_guard lock(mutex_);
    plot = last_;
  }
  wanted_ = true;
  return plot == nullptr ? "" : plot->svg();
}

}  // namespace braid::server
