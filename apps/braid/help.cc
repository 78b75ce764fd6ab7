#include "braid/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "braid/base/error.h"
#include "braid/spelling.h"

namespace braid::app {
namespace {

constexpr int kLeft = 26;  // columns of an option's names
constexpr const char* kFirstGroup = "Options";

// An option as help and manual show it: the first short and long name, then the others.
struct Entry {
  std::string names;  // "-n, --max-tokens N"
  std::string text;   // effect, default, other names
};

// Display width of UTF-8 text with narrow characters.
int width(const std::string& text) {
  return static_cast<int>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string value_name(const CLI::Option& option) {
  if (option.get_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  if (type.starts_with("FLOAT")) return "X";
  return "TEXT";
}

std::vector<std::string> all_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

Entry entry_of(const CLI::Option& option) {
  Entry entry;
  if (option.nonpositional()) {
    const auto& shorts = option.get_snames();
    const auto& longs = option.get_lnames();
    if (!shorts.empty()) entry.names = "-" + shorts[0];
    if (!longs.empty()) entry.names += (shorts.empty() ? "    --" : ", --") + longs[0];
    const std::string value = value_name(option);
    if (!value.empty()) entry.names += " " + value;
  } else {
    entry.names = option.get_name(true);
  }
  entry.text = option.get_description();
  if (option.get_required()) entry.text += " (required)";
  if (const std::string value = option.get_default_str(); !value.empty()) {
    entry.text += fmt::format(" (default: {})", value);
  }
  std::vector<std::string> others = all_names(option);
  std::erase_if(others, [&](const std::string& name) {
    return (!option.get_snames().empty() && name == "-" + option.get_snames()[0]) ||
           (!option.get_lnames().empty() && name == "--" + option.get_lnames()[0]);
  });
  if (!others.empty()) entry.text += fmt::format("; also {}", fmt::join(others, ", "));
  return entry;
}

// Words in lines of at most `columns`, all but the first indented.
std::string wrapped(const std::string& text, int indent, int columns) {
  std::string out;
  int column = indent;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (column > indent && column + 1 + width(word) > columns) {
      out += '\n' + std::string(static_cast<size_t>(indent), ' ');
      column = indent;
    }
    if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width(word);
    at = end + 1;
  }
  return out;
}

std::string lines_of(const Entry& entry, int columns) {
  std::string line = "  " + entry.names;
  if (width(line) + 2 > kLeft) {
    line += '\n' + std::string(kLeft, ' ');
  } else {
    line += std::string(static_cast<size_t>(kLeft - width(line)), ' ');
  }
  return line + wrapped(entry.text, kLeft, columns) + '\n';
}

// Shown options by group: common groups first, others in the order of adding.
std::vector<std::pair<std::string, std::vector<const CLI::Option*>>> groups_of(
    const CLI::App& command) {
  std::vector<std::pair<std::string, std::vector<const CLI::Option*>>> groups = {{kFirstGroup, {}}};
  for (const CLI::Option* option : command.get_options()) {
    const std::string& group = option->get_group();
    if (group.empty()) continue;  // hidden
    auto at = std::ranges::find(groups, group, [](const auto& g) { return g.first; });
    if (at == groups.end()) at = groups.insert(groups.end(), {group, {}});
    at->second.push_back(option);
  }
  // --help last.
  std::ranges::stable_partition(groups[0].second, [&](const CLI::Option* option) {
    return option != command.get_help_ptr();
  });
  return groups;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) commands.push_back(command);
  }
  return commands;
}

std::string usage(const CLI::App& command) {
  std::string line = full_name(command);
  for (const CLI::Option* option : command.get_options()) {
    if (!option->nonpositional()) {
      const std::string name = option->get_name(true);
      line += option->get_required() ? " " + name : " [" + name + "]";
    }
  }
  if (!commands_of(command).empty()) {
    line += command.get_require_subcommand_min() > 0 ? " COMMAND" : " [COMMAND]";
  }
  return line + " [OPTIONS]";
}

class OurFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    return help_text(*app, terminal_columns());
  }
};

std::string troff(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      if (c == '.' || c == '\'') out += (out.empty() || out.back() == '\n') ? "\\&" : "";
      out += c;
    }
  }
  return out;
}

void add_man_options(const CLI::App& command, std::string& out) {
  for (const auto& [group, options] : groups_of(command)) {
    if (options.empty()) continue;
    if (group != kFirstGroup) out += fmt::format(".PP\n.I {}\n", troff(group));
    for (const CLI::Option* option : options) {
      const Entry entry = entry_of(*option);
      out += fmt::format(".TP\n.B {}\n{}\n", troff(entry.names), troff(entry.text));
    }
  }
}

void add_man_command(const CLI::App& command, std::string& out) {
  out += fmt::format(".SS {}\n{}.\n", troff(usage(command)), troff(command.get_description()));
  add_man_options(command, out);
  if (!command.get_footer().empty()) {
    out += fmt::format(".PP\n.nf\n{}\n.fi\n", troff(command.get_footer()));
  }
  for (const CLI::App* inner : commands_of(command)) add_man_command(*inner, out);
}

struct Completed {
  std::string path;  // "bench attention"; of the program itself ""
  std::vector<const CLI::Option*> options;
  std::vector<const CLI::App*> commands;
};

void collect(const CLI::App& command, const std::string& path, std::vector<Completed>& out) {
  Completed here{path, {}, commands_of(command)};
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty() && option->nonpositional()) here.options.push_back(option);
  }
  out.push_back(here);
  for (const CLI::App* inner : here.commands) {
    collect(*inner, path.empty() ? inner->get_name() : path + " " + inner->get_name(), out);
  }
}

std::string bash_script(const std::vector<Completed>& all) {
  std::string out =
      "# Completion of braid's commands and options, for bash (and zsh with bashcompinit).\n"
      "_braid() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} path= i candidate words\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    candidate=\"${path:+$path }${COMP_WORDS[i]}\"\n"
      "    case $candidate in\n      ";
  std::string paths, words;
  for (const Completed& c : all) {
    if (!c.path.empty()) paths += (paths.empty() ? "'" : "|'") + c.path + "'";
    std::vector<std::string> names;
    for (const CLI::App* command : c.commands) names.push_back(command->get_name());
    for (const CLI::Option* option : c.options) {
      for (const std::string& name : all_names(*option)) names.push_back(name);
    }
    words += fmt::format("    '{}') words='{}' ;;\n", c.path, fmt::join(names, " "));
  }
  out += paths + ") path=$candidate ;;\n    esac\n  done\n  case $path in\n" + words +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- \"$word\"))\n"
         "}\n"
         "complete -o filenames -F _braid braid\n";
  return out;
}

std::string fish_quoted(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return "'" + text + "'";
}

std::string fish_script(const std::vector<Completed>& all) {
  std::string out = "# Completion of braid's commands and options, for fish.\n";
  for (const Completed& c : all) {
    std::string when = "__fish_use_subcommand";
    if (!c.path.empty()) {
      when.clear();
      for (size_t at = 0; at < c.path.size();) {
        const size_t end = std::min(c.path.find(' ', at), c.path.size());
        when += fmt::format("{}__fish_seen_subcommand_from {}", when.empty() ? "" : "; and ",
                            c.path.substr(at, end - at));
        at = end + 1;
      }
    }
    for (const CLI::App* command : c.commands) {
      out += fmt::format("complete -c braid -n {} -a {} -d {}\n", fish_quoted(when),
                         command->get_name(), fish_quoted(command->get_description()));
    }
    for (const CLI::Option* option : c.options) {
      std::string names;
      for (const std::string& name : option->get_snames()) names += " -s " + name;
      for (const std::string& name : option->get_lnames()) names += " -l " + name;
      out += fmt::format("complete -c braid -n {}{}{} -d {}\n", fish_quoted(when), names,
                         option->get_expected_max() == 0 ? "" : " -r",
                         fish_quoted(option->get_description()));
    }
  }
  return out;
}

}  // namespace

int terminal_columns() {
  int columns = 80;
  winsize size{};
  if (const char* text = std::getenv("COLUMNS"); text != nullptr && std::atoi(text) > 0) {
    columns = std::atoi(text);
  } else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    columns = size.ws_col;
  }
  return std::clamp(columns, 50, 100);
}

std::string help_text(const CLI::App& command, int columns) {
  std::string out = wrapped(command.get_description(), 0, columns) +
                    "\n\nUsage: " + wrapped(usage(command), 7, columns) + "\n";
  const std::vector<const CLI::App*> commands = commands_of(command);
  if (!commands.empty()) {
    out += "\nCommands:\n";
    for (const CLI::App* inner : commands) {
      out += lines_of({inner->get_name(), inner->get_description()}, columns);
    }
  }
  for (const auto& [group, options] : groups_of(command)) {
    if (options.empty()) continue;
    out += "\n" + group + ":\n";
    for (const CLI::Option* option : options) out += lines_of(entry_of(*option), columns);
  }
  if (!command.get_footer().empty()) out += "\n" + command.get_footer() + "\n";
  return out;
}

std::string man_page(const CLI::App& app, const std::string& version) {
  std::string out = fmt::format(".TH BRAID 1 \"\" \"{}\" \"\"\n", troff(version));
  out += ".SH NAME\nbraid \\- " + troff(app.get_description()) + "\n.SH SYNOPSIS\n.B " +
         troff(usage(app)) + "\n.SH OPTIONS\n";
  add_man_options(app, out);
  out += ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) add_man_command(*command, out);
  out += ".SH EXIT STATUS\n0, 1 for a job that failed, 2 for wrong usage, 130 after Ctrl\\-C.\n";
  return out;
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  std::vector<Completed> all;
  collect(app, "", all);
  if (shell == "bash") return bash_script(all);
  if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + bash_script(all);
  if (shell == "fish") return fish_script(all);
  fail(ErrorCode::kInvalidArgument, "shell '{}': wanted bash, zsh or fish", shell);
}

void use_our_help(CLI::App& app) {
  const auto formatter = std::make_shared<OurFormatter>();
  app.formatter(formatter);
  app.set_help_flag("-h,--help", "this text");
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    command->formatter(formatter);
    use_our_help(*command);
  }
}

}  // namespace braid::app
