#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace braid::app {

// Gives a command's options the values of a TOML file: `max-running = 16` for --max-running 16,
// `no-prefix-cache = true` for a flag, a list for an option that takes several. What the command
// line says stays. To be called in the command's callback, before its options are read. Fails with
// kNotFound, kMalformed or kInvalidArgument, naming file, line and key.
void apply_settings(CLI::App& command, const std::string& path);

// The values in effect, as "key = value" with commas between; without empty values.
std::string settings_text(const CLI::App& command);

// Lets this process open as many files, and so connections, as the system allows.
void raise_file_limit();

}  // namespace braid::app
