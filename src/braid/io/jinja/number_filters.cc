#include <algorithm>
#include <cmath>

#include "braid/io/jinja/args.h"
#include "braid/io/jinja/filters.h"
#include "braid/io/jinja/number.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/table.h"

namespace braid::jinja {
namespace {

Value absolute(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "abs", args, {});
  int64_t i = 0;
  if (is_integer(input, &i)) return i < 0 ? negate(runtime, i) : Value(i);
  if (const double* d = input.get_if<double>()) return std::fabs(*d);
  runtime.fail("bad operand type for abs(): '{}'", type_name(input));
}

// int() of a text: int(text, base), otherwise the whole part of float(text).
std::optional<int64_t> int_of_text(Runtime& runtime, std::string_view text, int base) {
  if (auto i = parse_int(runtime, text, base)) return i;
  const auto d = parse_float(text);
  if (!d || !std::isfinite(*d)) return std::nullopt;
  return truncate_to_int(runtime, *d);
}

Value to_int(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "int", args, {"default", "base"});
  const int64_t base = bound.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36)) {
    runtime.fail("int: base must be 0 or 2 to 36, not {}", base);
  }
  const Value otherwise = bound.get(0, int64_t{0});
  int64_t i = 0;
  if (is_integer(input, &i)) return i;
  if (const double* d = input.get_if<double>()) {
    return std::isnan(*d) ? otherwise : Value(truncate_to_int(runtime, *d));
  }
  if (input.undefined()) runtime.fail_undefined(input);
  if (!input.str()) return otherwise;
  const auto result = int_of_text(runtime, input.str()->text, static_cast<int>(base));
  return result ? Value(*result) : otherwise;
}

Value to_float(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "float", args, {"default"});
  const Value otherwise = bound.get(0, 0.0);
  if (is_number(input)) return to_double(input);
  if (input.undefined()) runtime.fail_undefined(input);
  if (!input.str()) return otherwise;
  const auto result = parse_float(input.str()->text);
  return result ? Value(*result) : otherwise;
}

Value round_towards(Runtime& runtime, const Value& input, int64_t precision, bool up) {
  const Value scale = binary(runtime, Arithmetic::pow, int64_t{10}, precision);
  const double scaled = to_double(binary(runtime, Arithmetic::mul, input, scale));
  const int64_t whole = truncate_to_int(runtime, up ? std::ceil(scaled) : std::floor(scaled));
  return binary(runtime, Arithmetic::div, whole, scale);
}

Value round(Runtime& runtime, const Value& input, const Args& args) {
  const Bound bound(runtime, "round", args, {"precision", "method"});
  const std::string_view method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    runtime.fail("round: method must be common, ceil or floor");
  }
  if (input.undefined()) runtime.fail_undefined(input);
  if (!is_number(input)) runtime.fail("round: '{}' is not a number", type_name(input));
  if (method != "common") {
    return round_towards(runtime, input, bound.integer(0, 0), method == "ceil");
  }
  int64_t i = 0;
  if (is_integer(input, &i)) {
    return bound.given(0) ? round_int(runtime, i, bound.integer(0, 0)) : Value(i);
  }
  if (bound.has(0) && bound[0].is_none()) {
    return truncate_to_int(runtime, std::nearbyint(input.get<double>()));
  }
  return round_float(input.get<double>(), bound.integer(0, 0));
}

constexpr FilterEntry kFilters[] = {
    {"abs", absolute}, {"float", to_float}, {"int", to_int}, {"round", round}};

}  // namespace

Filter find_number_filter(std::string_view name) {
  const FilterEntry* entry = find_entry(kFilters, name);
  return entry ? entry->filter : nullptr;
}

}  // namespace braid::jinja
