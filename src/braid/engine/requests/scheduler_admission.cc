#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/engine/requests/scheduler.h"

namespace braid {

KvHolding Scheduler::find_group(Entry& entry) {
  std::vector<int64_t> tokens(static_cast<size_t>(config_.groups));
  if (divided(entry)) {
    entry.group = -1;
    KvHolding found = store_.open(entry.sequence.salt);
    if (reuses(entry)) store_.find(found, entry.sequence.ids);
    return found;
  }
  for (const auto& [id, other] : entries_) {
    if (other->running() && other->group >= 0) tokens[other->group] += other->size();
  }
  KvHolding best;
  int64_t least = 0;
  for (int group = 0; group < config_.groups; ++group) {
    // The group is a part of the salt.
    const std::string& salt = entry.sequence.salt;
    KvHolding found = store_.open(config_.groups == 1 ? salt : fmt::format("{}\n{}", group, salt));
    const int64_t computed = reuses(entry) ? store_.find(found, entry.sequence.ids) : 0;
    const int64_t load = tokens[static_cast<size_t>(group)] - computed;
    if (!best.empty() && load >= least) {
      store_.close(found);
      continue;
    }
    store_.close(best);
    best = std::move(found);
    least = load;
    entry.group = group;
  }
  return best;
}

bool Scheduler::admit(Entry& entry) {
  if (preempted_now_) return false;  // running requests need all free pages
  const auto running =
      std::ranges::count_if(entries_, [](const auto& other) { return other.second->running(); });
  if (running >= config_.max_running) return false;
  const int64_t others = promised_pages() + (running == 0 ? 0 : expected_growth());
  KvHolding found = find_group(entry);
  const int64_t computed = std::ssize(found.path) * config_.page_size;
  const int64_t wanted = ceil_div(entry.size() + 1, config_.page_size) - std::ssize(found.pages);
  if (wanted + others > store_.available()) {
    store_.close(found);
    return false;
  }
  entry.holding = std::move(found);
  entry.computed = entry.kept = computed;
  if (!entry.begun) {
    entry.cached = computed;
    counts_.prefix_queries += entry.size();
    counts_.prefix_hits += computed;
  }
  return true;
}

}  // namespace braid
