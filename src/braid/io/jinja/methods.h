#pragma once

#include <optional>
#include <string_view>

#include "braid/io/jinja/runtime.h"

// Methods of Python's str, dict, list and tuple that templates may call. A method that would modify
// its object gives an undefined value, as in the immutable sandbox.
namespace braid::jinja {

using Method = Value (*)(Runtime& runtime, const Value& self, const Args& args);
struct MethodEntry {
  std::string_view name;
  Method method;
};

// The method bound to `self`, or nothing if the type has no such method.
std::optional<Value> find_method(Runtime& runtime, const Value& self, std::string_view name);

// nullptr: no such method.
const MethodEntry* find_str_method(std::string_view name);
const MethodEntry* find_container_method(const Value& self, std::string_view name);

}  // namespace braid::jinja
