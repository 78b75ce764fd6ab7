#include "braid/io/jinja/str_format.h"

#include <algorithm>
#include <cmath>

#include "braid/io/jinja/access.h"
#include "braid/io/jinja/number.h"
#include "braid/io/jinja/text.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false, zero = false, comma = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

constexpr int64_t kMaxPrecision = 350;

class SpecParser {
 public:
  SpecParser(Runtime& runtime, std::string_view text) : runtime_(runtime), text_(text) {}

  Spec run() {
    Spec spec;
    align(spec);
    take("+- ", &spec.sign);
    spec.alternate = take('#');
    spec.zero = take('0');
    spec.width = number(0);
    spec.comma = take(',');
    if (take('.')) spec.precision = number(-1);
    take("sdxXofFeEgG%", &spec.type);
    if (pos_ < text_.size()) runtime_.fail("invalid format specifier '{}'", text_);
    return spec;
  }

 private:
  static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

  void align(Spec& spec) {
    if (text_.empty()) return;
    size_t after = 0;
    utf8::next(text_, after);
    if (after < text_.size() && is_align(text_[after])) {
      spec.fill = text_.substr(0, after);
      spec.align = text_[after];
      pos_ = after + 1;
    } else if (is_align(text_[0])) {
      spec.align = text_[0];
      pos_ = 1;
    }
  }

  bool take(char c) {
    const bool match = pos_ < text_.size() && text_[pos_] == c;
    pos_ += match;
    return match;
  }
  bool take(std::string_view any, char* out) {
    if (pos_ >= text_.size() || any.find(text_[pos_]) == std::string_view::npos) return false;
    *out = text_[pos_++];
    return true;
  }
  int64_t number(int64_t otherwise) {
    const size_t begin = pos_;
    int64_t n = 0;
    for (; pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9'; ++pos_) {
      n = n * 10 + (text_[pos_] - '0');
      runtime_.check_text(static_cast<size_t>(n));
    }
    return pos_ > begin ? n : otherwise;
  }

  Runtime& runtime_;
  std::string_view text_;
  size_t pos_ = 0;
};

class Formatter {
 public:
  Formatter(Runtime& runtime, const Str& format, const Args& args)
      : runtime_(runtime), text_(format.text), args_(args), out_(runtime) {}

  Value run() {
    while (pos_ < text_.size()) {
      const size_t brace = std::min(text_.find_first_of("{}", pos_), text_.size());
      out_.append(text_.substr(pos_, brace - pos_));
      pos_ = brace + 1;
      if (brace >= text_.size()) break;
      if (pos_ < text_.size() && text_[pos_] == text_[brace]) {
        out_.append(text_.substr(brace, 1));
        ++pos_;
      } else if (text_[brace] == '{') {
        field();
      } else {
        runtime_.fail("single '}}' encountered in format string");
      }
    }
    return out_.value();
  }

 private:
  void field() {
    const size_t close = text_.find_first_of("{}", pos_);
    if (close == std::string_view::npos) runtime_.fail("expected '}}' before end of string");
    if (text_[close] == '{') runtime_.fail("nested fields of str.format are not supported");
    std::string_view body = text_.substr(pos_, close - pos_);
    pos_ = close + 1;
    std::string_view spec;
    if (const size_t colon = body.find(':'); colon != std::string_view::npos) {
      spec = body.substr(colon + 1);
      body = body.substr(0, colon);
    }
    char conversion = 0;
    if (const size_t mark = body.find('!'); mark != std::string_view::npos) {
      if (body.size() != mark + 2 || (body[mark + 1] != 's' && body[mark + 1] != 'r')) {
        runtime_.fail("unknown conversion in the format field '{}'", body);
      }
      conversion = body[mark + 1];
      body = body.substr(0, mark);
    }
    Value value = lookup(body);
    if (conversion == 's') value = runtime_.str(to_str(runtime_, value));
    if (conversion == 'r') value = runtime_.str(to_repr(runtime_, value));
    write(value, spec);
  }

  Value lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    for (path.remove_prefix(end); !path.empty();) {
      const bool item = path[0] == '[';
      const size_t stop =
          item ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
      if (stop == std::string_view::npos || stop == 1) runtime_.fail("bad format field '{}'", path);
      const std::string_view name = path.substr(1, stop - 1);
      const auto index = item ? parse_index(name) : std::nullopt;
      const Value key = index ? Value(*index) : runtime_.str(std::string(name));
      value = item ? get_item(runtime_, value, key) : get_attribute(runtime_, value, key);
      path.remove_prefix(stop + item);
    }
    return value;
  }

  std::optional<int64_t> parse_index(std::string_view text) const {
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    return digits ? parse_int(runtime_, text, 10) : std::nullopt;
  }

  Value argument(std::string_view name) {
    const auto index = parse_index(name);
    if (name.empty() || index) {
      const size_t at = index ? static_cast<size_t>(*index) : next_++;
      if (at < args_.positional.size()) return args_.positional[at];
      runtime_.fail("replacement index {} out of range for positional arguments", at);
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    runtime_.fail("format(): no argument '{}'", name);
  }

  void write(const Value& value, std::string_view spec_text) {
    if (spec_text.empty()) return append_str(runtime_, out_, value);
    const Spec spec = SpecParser(runtime_, spec_text).run();
    if (const Str* s = value.str()) return text(spec, *s);
    if (value.get_if<int64_t>() || value.get_if<double>()) return number(spec, value);
    runtime_.fail("unsupported format specifier for '{}'", type_name(value));
  }

  void text(const Spec& spec, const Str& value) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.comma) {
      runtime_.fail("invalid format specifier for 'str'");
    }
    std::string body = value.text;
    if (spec.precision >= 0 && spec.precision < value.length) {
      body.resize(utf8::offset(body, spec.precision));
    }
    pad(spec, "", body, '<');
  }

  void number(const Spec& spec, const Value& value) {
    const double d = to_double(value);
    const bool negative = std::signbit(d) && !std::isnan(d);
    std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    std::string body = digits(spec, value);
    if (spec.comma) group(body);
    if (spec.alternate && (spec.type == 'x' || spec.type == 'X' || spec.type == 'o')) {
      sign += {'0', spec.type};
    }
    pad(spec, sign, body, '>');
  }

  std::string digits(const Spec& spec, const Value& value) {
    const int64_t* i = value.get_if<int64_t>();
    const bool integral =
        spec.type == 0 || std::string_view("dxXo").find(spec.type) != std::string_view::npos;
    if (i && integral) {
      const uint64_t n = *i < 0 ? ~static_cast<uint64_t>(*i) + 1 : static_cast<uint64_t>(*i);
      if (spec.precision >= 0) runtime_.fail("precision not allowed in integer format specifier");
      return spec.type == 'x'   ? fmt::format("{:x}", n)
             : spec.type == 'X' ? fmt::format("{:X}", n)
             : spec.type == 'o' ? fmt::format("{:o}", n)
                                : fmt::format("{}", n);
    }
    const double d = std::fabs(to_double(value));
    if (spec.precision > kMaxPrecision) {
      runtime_.fail("a precision of {} digits exceeds the limit of {}", spec.precision,
                    kMaxPrecision);
    }
    if (spec.type == 0 && spec.precision < 0) return float_repr(d);
    const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
    if (spec.type == '%') return fmt::format("{:.{}f}%", d * 100, precision);
    if (spec.type == 0 || spec.type == 's' || integral) {
      runtime_.fail("this format specifier is not supported for 'float'");
    }
    return fmt::format(fmt::runtime(fmt::format("{{:.{}{}}}", precision, spec.type)), d);
  }

  static void group(std::string& body) {
    size_t end = body.find_first_not_of("0123456789");
    if (end == std::string::npos) end = body.size();
    for (size_t at = end; at > 3; at -= 3) body.insert(at - 3, ",");
  }

  void pad(const Spec& spec, const std::string& sign, const std::string& body, char usual) {
    const char align = spec.align ? spec.align : spec.zero ? '=' : usual;
    const std::string fill = spec.align == 0 && spec.zero ? "0" : spec.fill;
    const int64_t length = static_cast<int64_t>(sign.size()) + utf8::count(body);
    const int64_t missing = std::max<int64_t>(spec.width - length, 0);
    const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    if (align == '=') out_.append(sign);
    for (int64_t i = 0; i < before; ++i) out_.append(fill);
    if (align != '=') out_.append(sign);
    out_.append(body);
    for (int64_t i = before; i < missing; ++i) out_.append(fill);
  }

  Runtime& runtime_;
  std::string_view text_;
  const Args& args_;
  Text out_;
  size_t pos_ = 0;
  size_t next_ = 0;
};

}  // namespace

Value format_braces(Runtime& runtime, const Str& format, const Args& args) {
  return Formatter(runtime, format, args).run();
}

}  // namespace braid::jinja
