#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace braid {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// For "did you mean": the most likely intended name, whole or cut short. None if every name differs
// by more than a third of its letters, and begins otherwise.
std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names);

}  // namespace braid
