#pragma once

#include <CLI/CLI.hpp>

namespace braid::app {

// The type of an option whose text may be empty: `option->type_name(kMayBeEmpty)`.
inline constexpr const char* kMayBeEmpty = "TEXT or ''";

// Refuses values that the parser would misread: an empty value (an unset shell variable), and
// numbers out of range or not decimal. For all options of `app` and its commands; positional texts
// may be empty, and options of type kMayBeEmpty.
void require_strict_values(CLI::App& app);

}  // namespace braid::app
