#include "braid/io/jinja/number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

std::string_view trim_ascii(std::string_view text) {
  const auto space = [](char c) { return utf8::is_space(static_cast<unsigned char>(c)); };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

// Underscores may stand between digits only. False if one stands elsewhere.
bool drop_underscores(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto digit = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return false;
  }
  return true;
}

// Takes a prefix such as 0x if `base` allows it, and settles base 0.
bool take_base(std::string& digits, int& base) {
  const char mark = digits.size() > 1 && digits[0] == '0' ? digits[1] | 0x20 : '\0';
  const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (named != 0 && (base == 0 || base == named)) {
    digits.erase(0, 2);
    base = named;
    if (!digits.empty() && digits[0] == '_') digits.erase(0, 1);
  } else if (base == 0) {
    base = 10;
    if (digits.size() > 1 && digits[0] == '0') {
      return digits.find_first_not_of("0_") == std::string::npos;
    }
  }
  return true;
}

[[noreturn]] void fail_overflow(Runtime& runtime, std::string_view what) {
  runtime.fail("{} does not fit in 64 bits", what);
}

Value checked(Runtime& runtime, bool overflow, int64_t result) {
  if (overflow) fail_overflow(runtime, "the integer result");
  return result;
}

struct Quotient {
  int64_t floor, remainder;
};

Quotient floor_divide(Runtime& runtime, int64_t a, int64_t b) {
  if (b == 0) runtime.fail("integer division or modulo by zero");
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) fail_overflow(runtime, "the integer result");
    return {-a, 0};
  }
  Quotient q{a / b, a % b};
  if (q.remainder != 0 && (q.remainder < 0) != (b < 0)) {
    q.floor -= 1;
    q.remainder += b;
  }
  return q;
}

double python_fmod(Runtime& runtime, double a, double b) {
  if (b == 0) runtime.fail("float modulo by zero");
  double mod = std::fmod(a, b);
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) mod += b;
  } else {
    mod = std::copysign(0.0, b);
  }
  return mod;
}

double python_floor_div(Runtime& runtime, double a, double b) {
  if (b == 0) runtime.fail("float floor division by zero");
  double mod = std::fmod(a, b);
  double div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1.0;
  if (div == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(div);
  return div - floored > 0.5 ? floored + 1.0 : floored;
}

Value float_power(Runtime& runtime, double a, double b) {
  if (a == 0 && b < 0) runtime.fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    runtime.fail("a negative number raised to a fraction is complex, which is not supported");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    runtime.fail("the float result of ** is too large");
  }
  return result;
}

Value integer_power(Runtime& runtime, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    return float_power(runtime, static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  bool overflow = false;
  bool base_overflow = false;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) overflow |= base_overflow || __builtin_mul_overflow(result, base, &result);
    if (exponent > 1) base_overflow |= __builtin_mul_overflow(base, base, &base);
    if (overflow) break;
  }
  return checked(runtime, overflow, result);
}

Value integers(Runtime& runtime, Arithmetic op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Arithmetic::add:
      overflow = __builtin_add_overflow(a, b, &result);
      return checked(runtime, overflow, result);
    case Arithmetic::sub:
      overflow = __builtin_sub_overflow(a, b, &result);
      return checked(runtime, overflow, result);
    case Arithmetic::mul:
      overflow = __builtin_mul_overflow(a, b, &result);
      return checked(runtime, overflow, result);
    case Arithmetic::div:
      if (b == 0) runtime.fail("division by zero");
      return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
    case Arithmetic::floor_div:
      return floor_divide(runtime, a, b).floor;
    case Arithmetic::mod:
      return floor_divide(runtime, a, b).remainder;
    case Arithmetic::pow:
      break;
  }
  return integer_power(runtime, a, b);
}

Value floats(Runtime& runtime, Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::add:
      return a + b;
    case Arithmetic::sub:
      return a - b;
    case Arithmetic::mul:
      return a * b;
    case Arithmetic::div:
      if (b == 0) runtime.fail("float division by zero");
      return a / b;
    case Arithmetic::floor_div:
      return python_floor_div(runtime, a, b);
    case Arithmetic::mod:
      return python_fmod(runtime, a, b);
    case Arithmetic::pow:
      break;
  }
  return float_power(runtime, a, b);
}

std::string fixed_notation(const std::string& digits, int exponent) {
  if (exponent < 0) return "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return digits + std::string(whole - digits.size(), '0') + ".0";
  return digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), std::fabs(value),
                                 std::chars_format::scientific)
                       .ptr;
  const std::string scientific(buffer, end);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  std::string digits = scientific.substr(0, e);
  std::erase(digits, '.');
  std::string text = std::signbit(value) ? "-" : "";
  if (exponent >= -4 && exponent < 16) return text + fixed_notation(digits, exponent);
  text += digits.substr(0, 1);
  if (digits.size() > 1) text += "." + digits.substr(1);
  return text + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
}

std::optional<int64_t> parse_int(Runtime& runtime, std::string_view text, int base) {
  text = trim_ascii(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  std::string digits;
  if (!drop_underscores(text, digits) || !take_base(digits, base)) return std::nullopt;
  if (digits.empty() || !std::isalnum(static_cast<unsigned char>(digits[0]))) return std::nullopt;
  if (negative) digits.insert(0, 1, '-');
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, value, base);
  if (result.ptr != end) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) fail_overflow(runtime, "the integer");
  if (result.ec != std::errc{}) return std::nullopt;
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  std::string digits;
  if (!drop_underscores(trim_ascii(text), digits)) return std::nullopt;
  std::string_view rest = digits;
  if (!rest.empty() && rest[0] == '+') {
    rest.remove_prefix(1);
    if (!rest.empty() && rest[0] == '-') return std::nullopt;
  }
  if (rest.find('(') != std::string_view::npos) return std::nullopt;  // nan(...) is C, not Python
  double value = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (rest.empty() || result.ptr != rest.data() + rest.size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) return std::strtod(digits.c_str(), nullptr);
  if (result.ec != std::errc{}) return std::nullopt;
  return value;
}

int64_t truncate_to_int(Runtime& runtime, double value) {
  if (std::isnan(value)) runtime.fail("cannot convert float NaN to integer");
  if (std::isinf(value)) runtime.fail("cannot convert float infinity to integer");
  const double whole = std::trunc(value);
  if (whole < -0x1p63 || whole >= 0x1p63) fail_overflow(runtime, "the integer part of the float");
  return static_cast<int64_t>(whole);
}

double round_float(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
}

Value round_int(Runtime& runtime, int64_t value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return int64_t{0};
  int64_t scale = 1;
  for (; digits < 0; ++digits) scale *= 10;
  const Quotient q = floor_divide(runtime, value, scale);
  const bool up = q.remainder > scale - q.remainder ||
                  (q.remainder == scale - q.remainder && (q.floor & 1) != 0);
  int64_t result = 0;
  const bool overflow = __builtin_mul_overflow(q.floor + up, scale, &result);
  return checked(runtime, overflow, result);
}

std::string_view symbol(Arithmetic op) {
  static constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

Value arithmetic(Runtime& runtime, Arithmetic op, const Value& left, const Value& right) {
  int64_t a = 0;
  int64_t b = 0;
  if (is_integer(left, &a) && is_integer(right, &b)) return integers(runtime, op, a, b);
  return floats(runtime, op, to_double(left), to_double(right));
}

}  // namespace braid::jinja
