#pragma once

#include <string_view>

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

using Test = bool (*)(Runtime& runtime, const Value& input, const Args& args);
struct TestEntry {
  std::string_view name;
  Test test;
};

// Null without a test by this name.
Test find_test(std::string_view name);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input, const Args& args);

}  // namespace braid::jinja
