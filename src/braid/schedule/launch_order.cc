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

void LaunchOrder::add(Stream stream, std::span<const Wait> waits) {
  const auto s = static_cast<size_t>(stream);
  Clock clock = next_[s];
  for (const Wait& wait : waits) {
    if (!wait.inside()) {
      join(clock, wait.results == Results::early ? clock_[wait.launch] : end_[wait.launch]);
    }
  }
  stream_.push_back(stream);
  position_.push_back(next_[s][s]);
  clock_.push_back(clock);
  Clock access = clock;
  bool apart = false;  // accesses do not all begin with the launch
  int last = 0;
  for (const Wait& wait : waits) {
    last = std::max(last, wait.phase);
    apart = apart || wait.inside() || wait.results == Results::early;
    if (wait.inside() || wait.results == Results::all) continue;
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
