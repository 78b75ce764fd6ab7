#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace braid::app {

// Columns of standard output's terminal; 80 without a terminal. COLUMNS overrides.
int terminal_columns();

// The help of a command: usage, options by group, examples. Lines are no wider than `columns`.
std::string help_text(const CLI::App& command, int columns);
// A manual page (troff, man macros) for the program and all its commands.
std::string man_page(const CLI::App& app, const std::string& version);
// A script that completes commands and options in "bash", "zsh" or "fish". Fails with
// kInvalidArgument on another shell.
std::string completion_script(const CLI::App& app, const std::string& shell);

// Makes every command answer --help with help_text().
void use_our_help(CLI::App& app);

}  // namespace braid::app
