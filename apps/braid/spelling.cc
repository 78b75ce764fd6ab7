#include "braid/spelling.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "braid/base/error.h"
#include "braid/base/similar.h"

namespace braid::app {
namespace {

struct Spelling {
  const char* theirs;
  const char* ours;
};

// llama.cpp's and vLLM's options with a dash and several letters.
constexpr Spelling kSpellings[] = {
    {"-ngl", "--gpu-layers"}, {"-tp", "--tp"},      {"-hf", "--model"},   {"-hfr", "--model"},
    {"-cnv", "--chat"},       {"-sys", "--system"}, {"-dev", "--device"}, {"-ctk", "--kv-dtype"}};

// What such users type and Braid does without.
constexpr Spelling kNeedless[] = {
    {"-fa", "attention never stores its scores: there is nothing to switch on"},
    {"--flash-attn", "attention never stores its scores: there is nothing to switch on"},
    {"--mmap", "model files are always mapped"},
    {"--no-mmap", "model files are always mapped"},
    {"--gpu-memory-utilization", "--ctx bounds what the KV cache takes"},
    {"-no-cnv", "without --chat a prompt is completed"},
    {"-b", "the tokens of a prompt that a step computes are chosen by the engine"},
    {"-ub", "the tokens of a prompt that a step computes are chosen by the engine"},
};

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool has_option(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name) != nullptr;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->check_name(name)) return command;
  }
  return nullptr;
}

// The command named by these arguments; null: none yet.
const CLI::App* command_of(const std::vector<std::string>& arguments, const CLI::App& app) {
  const CLI::App* command = nullptr;
  for (const std::string& name : arguments) {
    const CLI::App* next = find_command(command ? *command : app, name);
    if (next == nullptr) break;
    command = next;
  }
  return command;
}

bool is_model_path(const std::string& text) {
  std::error_code ignored;
  return text.ends_with(".gguf") || std::filesystem::exists(text, ignored);
}

// "-word" for a command with "--word", and kSpellings; with "=VALUE" if present.
std::string long_option(const std::string& argument, const CLI::App& command) {
  const size_t end = std::min(argument.find('='), argument.size());
  const std::string name = argument.substr(0, end);
  for (const Spelling& s : kSpellings) {
    if (name == s.theirs && has_option(command, s.ours)) return s.ours + argument.substr(end);
  }
  if (name.size() > 2 && name[1] != '-' && has_option(command, "-" + name)) return "-" + argument;
  return argument;
}

}  // namespace

std::vector<std::string> in_our_spelling(std::vector<std::string> arguments, const CLI::App& app) {
  if (arguments.empty()) return arguments;
  const std::string first = arguments[0];
  if (first == "help") {
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
    return arguments;
  }
  if (first == "version" || first == "-v" || first == "-V") {
    arguments[0] = "--version";
    return arguments;
  }
  const bool own_option = has_option(app, first);
  const bool command_named = find_command(app, first) != nullptr;
  if (!own_option && !command_named && (first.starts_with('-') || is_model_path(first))) {
    arguments.insert(arguments.begin(), "run");
  }
  const CLI::App* command = command_of(arguments, app);
  if (command == nullptr) return arguments;
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument.size() < 2 || argument[0] != '-') continue;
    for (const Spelling& s : kNeedless) {
      if (argument != s.theirs || has_option(*command, argument)) continue;
      fail(ErrorCode::kInvalidArgument, "leave {} out: {}", s.theirs, s.ours);
    }
    argument = long_option(argument, *command);
  }
  return arguments;
}

const CLI::App& chosen_command(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_command(*chosen.back());
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

std::string about_leftovers(const CLI::App& app) {
  const CLI::App& command = chosen_command(app);
  const std::vector<std::string> rest = app.remaining(true);
  if (&command == &app) {
    const std::vector<std::string> names = command_names(app);
    const std::string list = fmt::format("{}", fmt::join(names, ", "));
    if (rest.empty()) return fmt::format("a command is wanted: {} (braid help run)", list);
    const auto near = nearest_name(rest[0], names);
    return fmt::format("there is no '{}'{}; the commands are {}", rest[0],
                       near ? fmt::format(", did you mean {}?", *near) : "", list);
  }
  const std::string help = full_name(command) + " --help lists all";
  const auto option = std::ranges::find_if(
      rest, [](const std::string& text) { return text.size() > 1 && text.starts_with('-'); });
  if (option == rest.end()) {
    return fmt::format("'{}' is one argument too many; {}", rest.empty() ? "" : rest.back(), help);
  }
  const std::string name = option->substr(0, option->find('='));
  const auto near = nearest_name(name, option_names(command));
  return fmt::format("{} has no option {}{}; {}", full_name(command), name,
                     near ? fmt::format(", did you mean {}?", *near) : "", help);
}

}  // namespace braid::app
