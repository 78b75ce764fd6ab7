#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace braid::jinja {

// The entry by this name in a table of built-ins, or null.
template <class Entry, size_t N>
const Entry* find_entry(const Entry (&table)[N], std::string_view name) {
  const Entry* at =
      std::find_if(table, table + N, [&](const Entry& entry) { return entry.name == name; });
  return at == table + N ? nullptr : at;
}

}  // namespace braid::jinja
