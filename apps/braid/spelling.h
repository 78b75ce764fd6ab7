#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace braid::app {

// Turns arguments in other programs' spelling into Braid's: `-ngl 99` into `--gpu-layers 99`, `help
// run` into `run --help`, `-m MODEL -p TEXT` with `run` before. Options with a dash and several
// letters are long options if the command has such. Fails with kInvalidArgument, giving the reason,
// on well-known options without use in Braid.
std::vector<std::string> in_our_spelling(std::vector<std::string> arguments, const CLI::App& app);

// A message about left-over arguments: names the nearest option or command.
std::string about_leftovers(const CLI::App& app);

// The deepest named command; `app` without any.
const CLI::App& chosen_command(const CLI::App& app);
// "braid bench attention".
std::string full_name(const CLI::App& command);

}  // namespace braid::app
