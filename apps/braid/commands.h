#pragma once

#include <CLI/CLI.hpp>

// The program's subcommands, a file each. Each adds itself to the command line; a chosen
// subcommand's action runs after parsing, and throws braid::Error on failure.
namespace braid::app {

void add_run(CLI::App& app);
void add_serve(CLI::App& app);
void add_image(CLI::App& app);
void add_video(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_detokenize(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_inspect(CLI::App& app);
void add_bench(CLI::App& app);
void add_bench_attention(CLI::App& bench);  // a subcommand of bench
void add_bench_serve(CLI::App& bench);      // another
void add_calibrate(CLI::App& app);
void add_ranks(CLI::App& app);
void add_plan(CLI::App& app);
void add_plan_prompt(CLI::App& plan);  // a subcommand of plan
void add_completion(CLI::App& app);
void add_man(CLI::App& app);

}  // namespace braid::app
