#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "braid/io/jinja/string_literal.h"
#include "braid/io/jinja/token.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

// \r\n and \r become \n; one newline at the very end goes.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool digit_of(char c, int base) {
  const char l = static_cast<char>(c | 0x20);
  return base == 16 ? is_digit(c) || (l >= 'a' && l <= 'f') : c >= '0' && c < '0' + base;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) root();
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  struct Opening {
    size_t at;   // of the tag
    size_t end;  // behind the tag, its sign, and for raw the whole tag
    char kind;   // '{' variable, '%' block, '#' comment, 'r' raw
    char sign;   // '-', '+' or 0
  };

  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  bool starts(std::string_view text, size_t i) const {
    return source_.compare(i, text.size(), text) == 0;
  }

  void add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text)});
  }

  // Moves to `to`, counting lines.
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    line_starting_ = to > pos_ && source_[to - 1] == '\n';
    pos_ = to;
  }

  size_t skip_space(size_t i) const {
    for (size_t next = i; next < source_.size(); i = next) {
      if (!utf8::is_space(utf8::next(source_, next))) break;
    }
    return i;
  }

  size_t skip_newline(size_t i) const { return at(i) == '\n' ? i + 1 : i; }

  // The end of {%- raw -%} with any spacing.
  std::optional<size_t> raw_tag(size_t block) const {
    size_t i = block + 2;
    if (at(i) == '-' || at(i) == '+') ++i;
    i = skip_space(i);
    if (!starts("raw", i)) return std::nullopt;
    i = skip_space(i + 3);
    if (starts("-%}", i)) return skip_space(i + 3);
    if (starts("%}", i)) return i + 2;
    return std::nullopt;
  }

  std::optional<Opening> next_opening() const {
    for (size_t i = source_.find('{', pos_); i != std::string::npos; i = source_.find('{', i + 1)) {
      const char kind = at(i + 1);
      if (kind != '{' && kind != '%' && kind != '#') continue;
      const char sign = at(i + 2) == '-' || at(i + 2) == '+' ? at(i + 2) : '\0';
      if (kind == '%') {
        if (const auto end = raw_tag(i)) return Opening{i, *end, 'r', sign};
      }
      return Opening{i, i + 2 + (sign != '\0'), kind, sign};
    }
    return std::nullopt;
  }

  // The text before a tag, cut by the tag's sign and lstrip_blocks.
  std::string_view strip_before(std::string_view text, char sign, bool variable) const {
    if (sign == '-') {
      size_t end = text.size();
      size_t solid = 0;
      for (size_t i = 0; i < end;) {
        if (!utf8::is_space(utf8::next(text, i))) solid = i;
      }
      return text.substr(0, solid);
    }
    if (sign == '+' || variable) return text;
    const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !line_starting_) return text;
    for (size_t i = line; i < text.size();) {
      if (!utf8::is_space(utf8::next(text, i))) return text;
    }
    return text.substr(0, line);
  }

  void data(std::string_view text) {
    if (!text.empty()) add(TokenKind::data, std::string(text));
  }

  void root() {
    const auto opening = next_opening();
    if (!opening) {
      data(std::string_view(source_).substr(pos_));
      return advance(source_.size());
    }
    const std::string_view text = std::string_view(source_).substr(pos_, opening->at - pos_);
    data(strip_before(text, opening->sign, opening->kind == '{'));
    advance(opening->at);
    const int opened = line_;
    if (opening->kind == '{') add(TokenKind::variable_begin);
    if (opening->kind == '%') add(TokenKind::block_begin);
    advance(opening->end);
    if (opening->kind == '#') return comment(opened);
    if (opening->kind == 'r') return raw(opened);
    tag(opening->kind == '%');
  }

  void comment(int opened) {
    const size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) fail_syntax(opened, "missing end of comment tag");
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    advance(after_close(end + 2, sign));
  }

  // Skips the text a tag swallows behind its end: white space, nothing, or a newline.
  size_t after_close(size_t end, char sign) const {
    return sign == '-' ? skip_space(end) : sign == '+' ? end : skip_newline(end);
  }

  void raw(int opened) {
    for (size_t i = source_.find("{%", pos_); i != std::string::npos;
         i = source_.find("{%", i + 1)) {
      size_t j = i + 2;
      const char sign = at(j) == '-' || at(j) == '+' ? at(j++) : '\0';
      j = skip_space(j);
      if (!starts("endraw", j)) continue;
      j = skip_space(j + 6);
      const char close = at(j) == '-' || at(j) == '+' ? at(j++) : '\0';
      if (!starts("%}", j)) continue;
      data(strip_before(std::string_view(source_).substr(pos_, i - pos_), sign, false));
      return advance(after_close(j + 2, close));
    }
    fail_syntax(opened, "missing end of raw directive");
  }

  // A tag's tokens up to its end.
  void tag(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    brackets_.clear();
    while (pos_ < source_.size()) {
      if (brackets_.empty() && tag_end(block, close)) return;
      token();
    }
  }

  bool tag_end(bool block, std::string_view close) {
    const char sign = at(pos_) == '-' || (block && at(pos_) == '+') ? at(pos_) : '\0';
    const size_t end = pos_ + (sign != '\0');
    if (!starts(close, end)) return false;
    add(block ? TokenKind::block_end : TokenKind::variable_end);
    const size_t behind = end + 2;
    advance(sign == '-' ? skip_space(behind) : block ? after_close(behind, sign) : behind);
    return true;
  }

  void token() {
    const size_t solid = skip_space(pos_);
    if (solid > pos_) return advance(solid);
    const char c = source_[pos_];
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    size_t next = pos_;
    if (utf8::is_word(utf8::next(source_, next))) return name();
    op();
  }

  // Digits with single underscores between, from `i`; returns the end.
  size_t digits(size_t i, int base) const {
    while (digit_of(at(i), base) || (at(i) == '_' && digit_of(at(i + 1), base))) ++i;
    return i;
  }

  // Behind a float that starts here, or nothing.
  std::optional<size_t> float_end() const {
    if (pos_ > 0 && source_[pos_ - 1] == '.') return std::nullopt;
    const size_t whole = digits(pos_, 10);
    size_t end = whole;
    if (at(end) == '.' && is_digit(at(end + 1))) end = digits(end + 1, 10);
    size_t exponent = end;
    if ((at(exponent) | 0x20) == 'e') {
      ++exponent;
      if (at(exponent) == '+' || at(exponent) == '-') ++exponent;
      if (is_digit(at(exponent))) end = digits(exponent, 10);
    }
    return end > whole ? std::optional(end) : std::nullopt;
  }

  void number() {
    if (const auto end = float_end()) {
      std::string text = source_.substr(pos_, *end - pos_);
      std::erase(text, '_');
      add(TokenKind::floating, text);
      tokens_.back().number = std::strtod(text.c_str(), nullptr);
      return advance(*end);
    }
    integer();
  }

  void integer() {
    const char mark = static_cast<char>(at(pos_ + 1) | 0x20);
    const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    size_t first = pos_ + 2 + (at(pos_ + 2) == '_');
    const bool prefixed = source_[pos_] == '0' && named != 10 && digit_of(at(first), named);
    if (!prefixed) first = pos_;
    size_t end = digits(first, prefixed ? named : 10);
    if (!prefixed && source_[pos_] == '0') {
      for (end = pos_ + 1; at(end) == '0' || (at(end) == '_' && at(end + 1) == '0');) ++end;
    }
    std::string text = source_.substr(first, end - first);
    std::erase(text, '_');
    int64_t value = 0;
    const auto result =
        std::from_chars(text.data(), text.data() + text.size(), value, prefixed ? named : 10);
    if (result.ec != std::errc{})
      fail_syntax(line_, "the integer {} does not fit in 64 bits", text);
    add(TokenKind::integer, text);
    tokens_.back().integer = value;
    advance(end);
  }

  void string(char quote_mark) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote_mark) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size())
      fail_syntax(line_, "unexpected char {}: a string without end", quote_mark);
    add(TokenKind::string,
        unescape(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1), line_));
    advance(end + 1);
  }

  void name() {
    size_t end = pos_;
    for (size_t next = pos_; next < source_.size(); end = next) {
      if (!utf8::is_word(utf8::next(source_, next))) break;
    }
    add(TokenKind::name, source_.substr(pos_, end - pos_));
    advance(end);
  }

  void op() {
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}<>=.:|,;";
    for (const std::string_view two : kLong) {
      if (!starts(two, pos_)) continue;
      add(TokenKind::op, std::string(two));
      return advance(pos_ + 2);
    }
    const char c = source_[pos_];
    if (kShort.find(c) == std::string_view::npos) {
      size_t next = pos_;
      utf8::next(source_, next);
      fail_syntax(line_, "unexpected char '{}'", source_.substr(pos_, next - pos_));
    }
    balance(c);
    add(TokenKind::op, std::string(1, c));
    advance(pos_ + 1);
  }

  void balance(char c) {
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c == '{') brackets_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) fail_syntax(line_, "unexpected '{}'", c);
    if (brackets_.back() != c) {
      fail_syntax(line_, "unexpected '{}', expected '{}'", c, brackets_.back());
    }
    brackets_.pop_back();
  }

  const std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > kMaxSource) {
    fail(ErrorCode::kResource, "the chat template has {} bytes, more than the limit of {}",
         source.size(), kMaxSource);
  }
  if (!utf8::valid(source)) fail(ErrorCode::kMalformed, "the chat template is not valid UTF-8");
  return Lexer(normalize(source)).run();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "template text";
    case TokenKind::variable_begin:
      return "{{";
    case TokenKind::variable_end:
      return "}}";
    case TokenKind::block_begin:
      return "{%";
    case TokenKind::block_end:
      return "%}";
    case TokenKind::end:
      return "end of template";
    default:
      return token.text;
  }
}

}  // namespace braid::jinja
