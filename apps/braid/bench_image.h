#pragma once

#include <CLI/CLI.hpp>

namespace braid::app {

void add_bench_image(CLI::App& bench);  // a subcommand of bench

}  // namespace braid::app
