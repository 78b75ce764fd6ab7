#include "braid/schedule/launch_order.h"

#include <algorithm>

#include "braid/schedule/schedule.h"

namespace braid {

LaunchOrder::LaunchOrder(std::span<const Launch> launches) {
  for (const Launch& launch : launches) add(launch.stream, launch.waits);
}

LaunchOrder::Pending LaunchOrder::begin(Stream stream) const {
  Pending pending;
  pending.order_ = this;
  pending.clock_ = next_[stream];
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

void LaunchOrder::add(Stream stream, std::span<const Wait> waits) {
  Clock clock = next_[stream];
  for (const Wait& wait : waits) {
    if (!wait.inside()) join(clock, wait.partial() ? clock_[wait.launch] : end_[wait.launch]);
  }
  stream_.push_back(stream);
  position_.push_back(next_[stream][stream]);
  clock_.push_back(clock);
  Clock access = clock;
  bool apart = false;  // accesses do not all begin with the launch
  int last = 0;
  for (const Wait& wait : waits) {
    last = std::max(last, wait.phase);
    apart = apart || wait.inside() || wait.partial();
    if (wait.inside() || !wait.partial()) continue;
    const Clock& begin = access_clock(wait.launch);
    for (size_t i = 0; i < access.size(); ++i) access[i] = std::min(access[i], begin[i]);
  }
  std::vector<Clock>& phases = phase_.emplace_back();
  if (apart) phases.push_back(access);
  for (int phase = 1; phase <= last; ++phase) {
    for (const Wait& wait : waits) {
      if (wait.phase != phase) continue;
      join(access, end_[wait.launch]);
      join(clock, end_[wait.launch]);
    }
    phases.push_back(access);
  }
  ++clock[stream];
  end_.push_back(clock);
  next_[stream] = clock;
}

const LaunchOrder::Clock& LaunchOrder::access_clock(int b, int phase) const {
  const std::vector<Clock>& phases = phase_[b];
  if (phases.empty()) return clock_[b];
  return phases[std::min(static_cast<size_t>(phase), phases.size() - 1)];
}

}  // namespace braid
