#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "braid/base/error.h"

namespace braid {

// Pointers by rising ids. A walk or a lookup reads one block of memory: a tree would wait for
// memory at each node, since a step pushes all bookkeeping out of the caches. Adding and erasing
// move the later pointers. A lookup remembers its place: not for several threads.
template <class Id, class Pointer>
class ById {
 public:
  using Item = std::pair<Id, Pointer>;

  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }

  // end() without such an id. Fast if ids are asked for in order, as a step does.
  auto find(Id id) { return items_.begin() + place(id); }
  auto find(Id id) const { return items_.begin() + place(id); }
  bool contains(Id id) const { return find(id) != end(); }
  const Pointer& at(Id id) const {
    const auto it = find(id);
    BRAID_CHECK(it != end(), "no request {}", id);
    return it->second;
  }

  // Requires: `id` is above all ids so far.
  void add(Id id, Pointer pointer) {
    BRAID_CHECK(empty() || items_.back().first < id, "id {} behind {}", id, items_.back().first);
    items_.emplace_back(id, std::move(pointer));
  }
  void erase(typename std::vector<Item>::const_iterator it) { items_.erase(it); }

 private:
  std::ptrdiff_t place(Id id) const {
    for (const size_t guess : {found_ + 1, found_}) {
      if (guess >= items_.size() || items_[guess].first != id) continue;
      found_ = guess;
      return static_cast<std::ptrdiff_t>(guess);
    }
    const auto it = std::ranges::lower_bound(items_, id, {}, &Item::first);
    if (it == items_.end() || it->first != id) return std::ssize(items_);
    found_ = static_cast<size_t>(it - items_.begin());
    return it - items_.begin();
  }

  std::vector<Item> items_;
  mutable size_t found_ = 0;  // the last place found; erased items may have left another id there
};

// Asks for all cache lines of [begin, end) at once; returns before the first has come.
inline void prefetch(const void* begin, const void* end) {
  constexpr uintptr_t kLine = 64;
  const auto last = reinterpret_cast<uintptr_t>(end);
  for (uintptr_t line = reinterpret_cast<uintptr_t>(begin) / kLine * kLine; line < last;
       line += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(line));
  }
}

}  // namespace braid
