#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/engine/requests/scheduler.h"

namespace braid {

// Clients name salts: each kind of page has a prefix of its own.
std::string Scheduler::salt_of(const Entry& entry, bool approximate) const {
  const std::string& salt = entry.sequence.salt;
  if (config_.approximate_from == 0) return salt;
  return (approximate ? "approximate\n" : "exact\n") + salt;
}

KvHolding Scheduler::find_group(Entry& entry) {
  const bool approximate = approximates(entry);
  const std::string salt = salt_of(entry, approximate);
  const bool shares = !approximate || config_.approximate_shared;
  std::vector<int64_t> tokens(static_cast<size_t>(config_.groups));
  if (divided(entry)) {
    entry.group = -1;
    KvHolding found = store_.open(salt, shares);
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
    KvHolding found =
        store_.open(config_.groups == 1 ? salt : fmt::format("{}\n{}", group, salt), shares);
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
    if (config_.approximate_from > 0 && !approximates(entry) && reuses(entry)) {
      const int64_t there = store_.cached(salt_of(entry, true), entry.sequence.ids);
      counts_.approximate_passed += std::max<int64_t>(0, there - computed);
    }
  }
  return true;
}

}  // namespace braid
