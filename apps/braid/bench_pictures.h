#pragma once

#include <CLI/CLI.hpp>

namespace braid::app {

// Subcommands of bench.
void add_bench_image(CLI::App& bench);
void add_bench_video(CLI::App& bench);

}  // namespace braid::app
