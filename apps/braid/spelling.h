#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace braid::app {

// Arguments as users of other programs type them, in Braid's spelling: `-ngl 99` as
// `--gpu-layers 99`, `help run` as `run --help`, `-m MODEL -p TEXT` with `run` before. Options of
// one dash and several letters are long ones where the command has such. Fails with
// kInvalidArgument, saying why, on well-known options that Braid has no use for.
std::vector<std::string> in_our_spelling(std::vector<std::string> arguments, const CLI::App& app);

// What to say where arguments were left over: names the nearest option or command.
std::string about_leftovers(const CLI::App& app);

// The deepest command that was named; `app` where none was.
const CLI::App& chosen_command(const CLI::App& app);
// "braid bench attention".
std::string full_name(const CLI::App& command);

}  // namespace braid::app
