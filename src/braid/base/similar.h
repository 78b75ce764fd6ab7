#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace braid {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// For "did you mean": the name that a typist most likely wanted, whole or cut short. None where
// every name differs by more than a third of its letters, and begins otherwise.
std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> names);

}  // namespace braid
