#include "braid/schedule/launch_order.h"

#include <algorithm>

#include "braid/schedule/schedule.h"

namespace braid {

LaunchOrder::LaunchOrder(std::span<const Launch> launches) {
  for (const Launch& launch : launches) add(launch.stream, launch.waits, launch.late);
}

LaunchOrder::Pending LaunchOrder::begin(Stream stream) const {
  Pending pending;
  pending.order_ = this;
  pending.clock_ = next_[static_cast<size_t>(stream)];
  return pending;
}

bool LaunchOrder::Pending::wait_for(int launch) {
  if (order_->ended(launch, clock_)) return false;
  order_->join(clock_, launch);
  return true;
}

void LaunchOrder::join(Clock& clock, int launch) const {
  const Clock& other = end_[static_cast<size_t>(launch)];
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void LaunchOrder::add(Stream stream, std::span<const int> waits, std::span<const int> late) {
  const auto s = static_cast<size_t>(stream);
  Clock clock = next_[s];
  for (int wait : waits) join(clock, wait);
  stream_.push_back(stream);
  position_.push_back(next_[s][s]);
  clock_.push_back(clock);
  for (int awaited : late) join(clock, awaited);
  ++clock[s];
  end_.push_back(clock);
  next_[s] = clock;
}

}  // namespace braid
