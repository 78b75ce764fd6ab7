#pragma once

#include <CLI/CLI.hpp>

namespace braid::app {

// Refuses what the parser would take for something else: an empty value (a shell variable that was
// not set), and numbers that do not fit or are not written in decimal. For all options of `app` and
// of its commands; texts that are arguments by position may be empty.
void require_strict_values(CLI::App& app);

}  // namespace braid::app
