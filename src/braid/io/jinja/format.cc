#include "braid/io/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "braid/io/jinja/number.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/text.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

struct Spec {
  bool left = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char conversion = 0;
};

constexpr int64_t kMaxPrecision = 350;  // the digits of the largest float, and some

class Formatter {
 public:
  Formatter(Runtime& runtime, const Str& format, const Value& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments), out_(runtime) {
    if (const Sequence* s = arguments.sequence(); s && s->kind == Sequence::Kind::tuple) tuple_ = s;
  }

  Value run() {
    const std::string& text = format_.text;
    while (pos_ < text.size()) {
      const size_t percent = std::min(text.find('%', pos_), text.size());
      out_.append(std::string_view(text).substr(pos_, percent - pos_));
      pos_ = percent + 1;
      if (percent < text.size()) conversion();
    }
    check_all_used();
    return out_.value(format_.markup);
  }

 private:
  char peek() const {
    if (pos_ >= format_.text.size()) runtime_.fail("incomplete format '{}'", format_.text);
    return format_.text[pos_];
  }

  int64_t number() {
    int64_t n = 0;
    for (; peek() >= '0' && peek() <= '9'; ++pos_) {
      n = n * 10 + (peek() - '0');
      runtime_.check_text(static_cast<size_t>(n));
    }
    return n;
  }

  void conversion() {
    named_ = nullptr;
    if (peek() == '(') named_ = by_name();
    Spec spec = flags();
    spec.width = number();
    if (peek() == '.') {
      ++pos_;
      spec.precision = number();
    }
    spec.conversion = peek();
    ++pos_;
    if (spec.conversion == '%') return out_.append("%");
    if (std::string_view("srdiufFeEgGxXo").find(spec.conversion) == std::string_view::npos) {
      runtime_.fail("unsupported format character '{}' in '{}'", spec.conversion, format_.text);
    }
    convert(spec, named_ ? *named_ : next_argument());
  }

  Spec flags() {
    Spec spec;
    for (;; ++pos_) {
      switch (peek()) {
        case '-':
          spec.left = true;
          break;
        case '+':
          spec.plus = true;
          break;
        case ' ':
          spec.space = true;
          break;
        case '0':
          spec.zero = true;
          break;
        case '#':
          spec.alternate = true;
          break;
        default:
          return spec;
      }
    }
  }

  const Value* by_name() {
    const size_t close = format_.text.find(')', pos_);
    if (close == std::string::npos) runtime_.fail("incomplete format key '{}'", format_.text);
    const std::string name = format_.text.substr(pos_ + 1, close - pos_ - 1);
    pos_ = close + 1;
    if (!arguments_.dict()) runtime_.fail("format requires a mapping");
    const Value* value = find(runtime_, *arguments_.dict(), name);
    if (!value) runtime_.fail("format key '{}' is missing", name);
    used_ = 1;
    return value;
  }

  Value next_argument() {
    const size_t n = tuple_ ? tuple_->items.size() : 1;
    if (used_ >= n) runtime_.fail("not enough arguments for format string '{}'", format_.text);
    return tuple_ ? tuple_->items[used_++] : (++used_, arguments_);
  }

  void check_all_used() const {
    const bool mapping = arguments_.dict() || arguments_.undefined() ||
                         arguments_.get<const Range*>() ||
                         (arguments_.sequence() && !tuple_ && arguments_.sequence()->indexable());
    if (used_ < (tuple_ ? tuple_->items.size() : 1) && !mapping) {
      runtime_.fail("not all arguments converted during string formatting");
    }
  }

  void convert(const Spec& spec, const Value& value) {
    switch (spec.conversion) {
      case 's':
      case 'r':
        return pad(spec, "", text(spec, value), false);
      case 'd':
      case 'i':
      case 'u':
        return integer(spec, value);
      case 'x':
      case 'X':
      case 'o':
        return based(spec, value);
      default:
        return real(spec, value);
    }
  }

  std::string text(const Spec& spec, const Value& value) {
    Value source = value;
    if (spec.conversion == 'r') source = runtime_.str(to_repr(runtime_, value));
    if (format_.markup) source = escape_html(runtime_, source);
    std::string result = to_str(runtime_, source);
    if (spec.precision >= 0 && spec.precision < utf8::count(result)) {
      result.resize(utf8::offset(result, spec.precision));
    }
    return result;
  }

  std::string sign(const Spec& spec, bool negative) const {
    return negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  }

  int64_t whole_number(const Spec& spec, const Value& value) {
    int64_t i = 0;
    if (is_integer(value, &i)) return i;
    if (value.undefined()) runtime_.fail_undefined(value);
    if (const double* d = value.get_if<double>();
        d && spec.conversion != 'x' && spec.conversion != 'X' && spec.conversion != 'o') {
      return truncate_to_int(runtime_, *d);
    }
    runtime_.fail("%{} format: a number is required, not {}", spec.conversion, type_name(value));
  }

  std::string zero_extend(const Spec& spec, std::string digits) {
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      runtime_.charge(static_cast<size_t>(spec.precision));
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    return digits;
  }

  static uint64_t magnitude(int64_t i) {
    return i < 0 ? ~static_cast<uint64_t>(i) + 1 : static_cast<uint64_t>(i);
  }

  void integer(const Spec& spec, const Value& value) {
    const int64_t i = whole_number(spec, value);
    pad(spec, sign(spec, i < 0), zero_extend(spec, fmt::format("{}", magnitude(i))), true);
  }

  void based(const Spec& spec, const Value& value) {
    const int64_t i = whole_number(spec, value);
    const uint64_t n = magnitude(i);
    std::string digits = spec.conversion == 'o'   ? fmt::format("{:o}", n)
                         : spec.conversion == 'x' ? fmt::format("{:x}", n)
                                                  : fmt::format("{:X}", n);
    std::string prefix = sign(spec, i < 0);
    if (spec.alternate) prefix += {'0', spec.conversion};
    pad(spec, prefix, zero_extend(spec, digits), true);
  }

  void real(const Spec& spec, const Value& value) {
    double d = 0;
    if (is_number(value)) {
      d = to_double(value);
    } else if (value.undefined()) {
      runtime_.fail_undefined(value);
    } else {
      runtime_.fail("must be real number, not {}", type_name(value));
    }
    const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
    if (precision > kMaxPrecision) {
      runtime_.fail("a precision of {} digits exceeds the limit of {}", precision, kMaxPrecision);
    }
    const std::string pattern =
        fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", precision, spec.conversion);
    pad(spec, sign(spec, std::signbit(d) && !std::isnan(d)),
        fmt::format(fmt::runtime(pattern), std::isnan(d) ? d : std::fabs(d)), true);
  }

  void pad(const Spec& spec, const std::string& prefix, const std::string& body, bool numeric) {
    const int64_t length = static_cast<int64_t>(prefix.size()) + utf8::count(body);
    const auto fill = static_cast<size_t>(std::max<int64_t>(spec.width - length, 0));
    const bool zeros = spec.zero && numeric && !spec.left;
    if (!spec.left && !zeros) out_.append(fill, ' ');
    out_.append(prefix);
    if (zeros) out_.append(fill, '0');
    out_.append(body);
    if (spec.left) out_.append(fill, ' ');
  }

  Runtime& runtime_;
  const Str& format_;
  const Value& arguments_;
  Text out_;
  const Sequence* tuple_ = nullptr;
  const Value* named_ = nullptr;
  size_t used_ = 0;
  size_t pos_ = 0;
};

}  // namespace

Value format_printf(Runtime& runtime, const Str& format, const Value& arguments) {
  return Formatter(runtime, format, arguments).run();
}

}  // namespace braid::jinja
