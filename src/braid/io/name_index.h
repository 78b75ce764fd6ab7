#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace braid {

// Looks up one of n names by binary search: O(log n) for any names, while hostile names could make
// a hash table quadratic. The names stay in place; their owner passes the same `name_of` each
// time.
class NameIndex {
 public:
  template <class NameOf>
  NameIndex(size_t n, const NameOf& name_of) : order_(n) {
    for (size_t i = 0; i < n; ++i) order_[i] = static_cast<uint32_t>(i);
    std::ranges::sort(order_, {}, name_of);
  }
  NameIndex() = default;

  template <class NameOf>
  std::optional<size_t> find(std::string_view name, const NameOf& name_of) const {
    const auto at = std::ranges::lower_bound(order_, name, {}, name_of);
    if (at == order_.end() || name_of(*at) != name) return std::nullopt;
    return *at;
  }

  // A name that occurs more than once.
  template <class NameOf>
  std::optional<std::string_view> duplicate(const NameOf& name_of) const {
    const auto at = std::ranges::adjacent_find(order_, {}, name_of);
    if (at == order_.end()) return std::nullopt;
    return name_of(*at);
  }

 private:
  std::vector<uint32_t> order_;
};

}  // namespace braid
