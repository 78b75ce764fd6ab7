#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "braid/base/error.h"

namespace braid {

// Pointers by rising ids. A walk or a lookup reads one block of memory: a tree would wait for
// memory at each node, since a step pushes all bookkeeping out of the caches. Adding and erasing
// move the later pointers.
template <class Id, class Pointer>
class ById {
 public:
  using Item = std::pair<Id, Pointer>;

  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }

  // end() without such an id.
  auto find(Id id) { return find_in(items_, id); }
  auto find(Id id) const { return find_in(items_, id); }
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
  static auto find_in(auto& items, Id id) {
    const auto it = std::ranges::lower_bound(items, id, {}, &Item::first);
    return it != items.end() && it->first == id ? it : items.end();
  }

  std::vector<Item> items_;
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
