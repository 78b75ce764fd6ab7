#pragma once

#include <algorithm>
#include <list>
#include <string>
#include <utility>

namespace braid {

// Values of the most recently used keys, `capacity` at most. One thread at a time.
template <class Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(size_t capacity) : capacity_(capacity) {}

  // The key's value: the kept one, or a new one of `make`, for which a full list first drops its
  // least recently used. The reference lives until the next get() or clear().
  template <class Make>
  Value& get(const std::string& key, const Make& make) {
    const auto found = std::ranges::find(kept_, key, &Entry::first);
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return kept_.front().second;
    }
    if (kept_.size() == capacity_) kept_.pop_back();
    return kept_.emplace_front(key, make()).second;
  }
  void clear() { kept_.clear(); }

 private:
  using Entry = std::pair<std::string, Value>;

  const size_t capacity_;
  std::list<Entry> kept_;  // the most recently used in front
};

}  // namespace braid
