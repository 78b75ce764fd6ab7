#pragma once

#include <string_view>

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

using Filter = Value (*)(Runtime& runtime, const Value& input, const Args& args);
struct FilterEntry {
  std::string_view name;
  Filter filter;
};

// Null without a filter by this name.
Filter find_filter(std::string_view name);
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, const Args& args);

// The families, each in a separate file.
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Filter find_select_filter(std::string_view name);
Filter find_number_filter(std::string_view name);

}  // namespace braid::jinja
