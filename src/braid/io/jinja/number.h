#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "braid/io/jinja/runtime.h"

// Python's numbers: text to number and back, and arithmetic. Integers have 64 bits here; a result
// outside them is refused, where Python would go on.
namespace braid::jinja {

std::string float_repr(double value);  // the shortest text that reads back as the same float
// int(text, base), float(text); nothing where Python raises ValueError.
std::optional<int64_t> parse_int(Runtime& runtime, std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

// int(value) of a float: truncates; fails for an infinity, a NaN, or a value beyond 64 bits.
int64_t truncate_to_int(Runtime& runtime, double value);
// round(value, digits), half to even.
double round_float(double value, int64_t digits);
Value round_int(Runtime& runtime, int64_t value, int64_t digits);

enum class Arithmetic { add, sub, mul, div, floor_div, mod, pow };
std::string_view symbol(Arithmetic op);
// Both operands are numbers.
Value arithmetic(Runtime& runtime, Arithmetic op, const Value& left, const Value& right);

}  // namespace braid::jinja
