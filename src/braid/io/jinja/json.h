#pragma once

#include <nlohmann/json.hpp>

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

// JSON data as values. `path` names the datum in errors: nesting beyond the depth limit, integers
// beyond 64 bits and text that is not UTF-8 are refused.
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, std::string_view path);

// Python's json.dumps with the keywords of the same name.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of a level; absent: a single line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
Value to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace braid::jinja
