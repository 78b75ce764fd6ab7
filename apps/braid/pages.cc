// Pages made from the table of options: completions for shells, and the manual.
#include <memory>

#include "braid/commands.h"
#include "braid/help.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace braid::app {

void add_completion(CLI::App& app) {
  auto* command = app.add_subcommand("completion", "Prints a completion script for a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  command->footer(
      "Examples:\n  source <(braid completion bash)\n"
      "  braid completion fish > ~/.config/fish/completions/braid.fish");
  command->callback([&app, shell] { print(completion_script(app, *shell)); });
}

void add_man(CLI::App& app) {
  auto* command = app.add_subcommand("man", "Prints the manual page");
  command->footer("Example:\n  braid man | man -l -");
  command->callback([&app] { print(man_page(app, version_line())); });
}

}  // namespace braid::app
