#pragma once

#include <functional>

#include "braid/io/jinja/runtime.h"

// Iteration over values, as Python's iter() and for.
namespace braid::jinja {

// Fails for values that Python does not iterate.
Iterator* make_iterator(Runtime& runtime, const Value& value);
bool iterable(const Value& value);
// An iterator from a function that gives the next item, or false at the end.
Value make_generator(Runtime& runtime, std::function<bool(Runtime&, Value&)> next);

// All items; consumes an iterator.
std::vector<Value> collect(Runtime& runtime, const Value& value);

// len(value), or nothing where Python raises.
std::optional<int64_t> length(const Value& value);

}  // namespace braid::jinja
