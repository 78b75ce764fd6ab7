#pragma once

#include <compare>
#include <string_view>

#include "braid/io/jinja/number.h"
#include "braid/io/jinja/runtime.h"

// Python's operators on values.
namespace braid::jinja {

bool truthy(const Value& value);
bool equal(Runtime& runtime, const Value& a, const Value& b);
// a < b where Python defines an order; fails otherwise. `symbol` is for the message.
bool less(Runtime& runtime, const Value& a, const Value& b, std::string_view symbol = "<");
bool contains(Runtime& runtime, const Value& container, const Value& item);

enum class Comparison { eq, ne, lt, le, gt, ge, in, not_in };
bool compare(Runtime& runtime, Comparison op, const Value& a, const Value& b);

Value binary(Runtime& runtime, Arithmetic op, const Value& left, const Value& right);
Value negate(Runtime& runtime, const Value& value);
Value plus(Runtime& runtime, const Value& value);

// The entry of a key, or null. Fails for a key that Python cannot hash, such as a list.
const Value* find(Runtime& runtime, const Dict& dict, const Value& key);
const Value* find(Runtime& runtime, const Dict& dict, std::string_view key);
void insert(Runtime& runtime, Dict& dict, const Value& key, const Value& value);
bool hashable(const Value& value);

}  // namespace braid::jinja
