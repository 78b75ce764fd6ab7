#include "braid/settings.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <toml++/toml.h>
#include <algorithm>
#include <filesystem>
#include <optional>

#include "braid/base/error.h"

namespace braid::app {
namespace {

// A value in the command line's form; nothing for a TOML type without options.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return {};
}

bool is_flag(const CLI::Option& option) {
  return option.get_expected_max() == 0;
}

void apply(CLI::Option& option, const toml::node& node, const std::string& where) {
  std::vector<std::string> values;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& one : *list) {
      const auto text = text_of(one);
      if (!text) fail(ErrorCode::kInvalidArgument, "{} holds something other than values", where);
      values.push_back(*text);
    }
  } else if (const auto text = text_of(node)) {
    values.push_back(*text);
  }
  const bool boolean = node.is_boolean();
  if (values.empty() || boolean != is_flag(option)) {
    fail(ErrorCode::kInvalidArgument, "{} is {}", where,
         is_flag(option) ? "a flag: wanted true or false" : "no value that the option takes");
  }
  if (option.count() > 0) return;  // the command line said otherwise
  try {
    for (std::string& value : values) option.add_result(std::move(value));
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    fail(ErrorCode::kInvalidArgument, "{}: {}", where, error.what());
  }
}

std::string key_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames()[0];
}

}  // namespace

void apply_settings(CLI::App& command, const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) fail(ErrorCode::kNotFound, "cannot open {}", path);
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    fail(ErrorCode::kMalformed, "{}:{}: {}", path, error.source().begin.line, error.description());
  }
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    std::ranges::replace(name, '_', '-');
    const std::string where = fmt::format("{}:{}: {}", path, node.source().begin.line, key.str());
    CLI::Option* const option = command.get_option_no_throw("--" + name);
    if (option == nullptr || name == "settings" || name == "help") {
      fail(ErrorCode::kInvalidArgument, "{} is no option of {}", where, command.get_name());
    }
    apply(*option, node, where);
  }
}

std::string settings_text(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    const std::string key = key_of(*option);
    if (key.empty() || key == "help" || key == "settings") continue;
    std::string value = option->get_default_str();
    if (option->count() > 0) {
      value = is_flag(*option) && option->results() == std::vector<std::string>{"true"}
                  ? "true"
                  : fmt::format("{}", CLI::detail::join(option->results(), ","));
    }
    if (!value.empty()) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
  }
  return text;
}

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // otherwise connections beyond the limit have to wait
}

}  // namespace braid::app
