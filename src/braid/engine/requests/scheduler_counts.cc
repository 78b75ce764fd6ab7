#include "braid/engine/requests/scheduler.h"

namespace braid {

Scheduler::Counts Scheduler::counts() const {
  Counts counts = counts_;
  for (const auto& [id, entry] : entries_) ++(entry->running() ? counts.running : counts.waiting);
  counts.evictions = store_.evictions();
  counts.pages = store_.counts();
  return counts;
}

double Scheduler::oldest_wait(double now) const {
  for (const auto& [id, entry] : entries_) {
    if (!entry->running()) return now - entry->sequence.arrival;
  }
  return 0;
}

void Scheduler::check() const {
  std::vector<const KvHolding*> holdings;
  for (const auto& [id, entry] : entries_) {
    if (entry->running()) holdings.push_back(&entry->holding);
  }
  store_.check(holdings);
}

}  // namespace braid
