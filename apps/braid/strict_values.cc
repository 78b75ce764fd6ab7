#include "braid/strict_values.h"

#include <fmt/format.h>

#include <charconv>
#include <type_traits>

namespace braid::app {
namespace {

// The fault in `text` as a whole number of type T; empty: none.
template <class T>
std::string whole_number(const std::string& text) {
  const char* end = text.data() + text.size();
  T value = 0;
  if (std::is_unsigned_v<T> && text.starts_with('-'))
    return fmt::format("{}, wanted from 0 on", text);
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) return fmt::format("{} is out of range", text);
  const std::string digits = text.substr(text.starts_with('-') ? 1 : 0);
  const bool octal = digits.size() > 1 && digits.starts_with('0');
  if (error != std::errc{} || stop != end || octal) {
    return fmt::format("'{}' is not a whole number", text);
  }
  return {};
}

std::string decimal_number(const std::string& text) {
  const char* end = text.data() + text.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) return fmt::format("{} is out of range", text);
  if (error != std::errc{} || stop != end) return fmt::format("'{}' is not a number", text);
  return {};
}

std::string not_empty(const std::string& text) {
  return text.empty() ? "its value is empty" : "";
}

}  // namespace

void require_strict_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_expected_max() == 0) continue;  // a flag
    const std::string type = option->get_type_name();
    if (type == "INT") {
      option->check(whole_number<int64_t>);
    } else if (type == "UINT") {
      option->check(whole_number<uint64_t>);
    } else if (type == "FLOAT") {
      option->check(decimal_number);
    } else if (option->nonpositional() && type != kMayBeEmpty) {
      option->check(not_empty);
    }
  }
  for (CLI::App* command : app.get_subcommands(nullptr)) require_strict_values(*command);
}

}  // namespace braid::app
