#pragma once

#include <CLI/CLI.hpp>

namespace braid::app {

void add_bench_trace(CLI::App& bench);  // a subcommand of bench

}  // namespace braid::app
