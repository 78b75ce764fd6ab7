#include "braid/schedule/launch_order.h"

#include <algorithm>

#include "braid/schedule/schedule.h"

namespace braid {

LaunchOrder::LaunchOrder(std::span<const Launch> launches) {
  for (const Launch& launch : launches) add(launch.stream, launch.waits, launch.late, launch.early);
}

LaunchOrder::Pending LaunchOrder::begin(Stream stream) const {
  Pending pending;
  pending.order_ = this;
  pending.clock_ = next_[static_cast<size_t>(stream)];
  return pending;
}

bool LaunchOrder::Pending::wait_for(int launch) {
  if (order_->ended(launch, clock_)) return false;
  join(clock_, order_->end_[launch]);
  return true;
}

void LaunchOrder::join(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void LaunchOrder::add(Stream stream, std::span<const int> waits, std::span<const int> late,
                      int early) {
  const auto s = static_cast<size_t>(stream);
  Clock clock = next_[s];
  for (int wait : waits) join(clock, end_[wait]);
  if (early >= 0) join(clock, clock_[early]);
  stream_.push_back(stream);
  position_.push_back(next_[s][s]);
  clock_.push_back(clock);
  std::vector<Clock>& phases = phase_.emplace_back();
  if (early >= 0 || !late.empty()) {
    phases.push_back(early >= 0 ? access_clock(early) : clock);
  }
  for (int awaited : late) {
    join(clock, end_[awaited]);
    Clock phase = phases[0];
    join(phase, end_[awaited]);
    phases.push_back(phase);
  }
  ++clock[s];
  end_.push_back(clock);
  next_[s] = clock;
}

const LaunchOrder::Clock& LaunchOrder::access_clock(int b, int phase) const {
  const std::vector<Clock>& phases = phase_[b];
  if (phases.empty()) return clock_[b];
  return phases[std::min(static_cast<size_t>(phase), phases.size() - 1)];
}

}  // namespace braid
