#include "braid/io/jinja/string_literal.h"

#include <charconv>

#include "braid/io/jinja/token.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

char simple_escape(char c) {
  switch (c) {
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return '\0';
  }
}

class Unescaper {
 public:
  Unescaper(std::string_view literal, int line) : text_(literal), line_(line) {}

  std::string run() {
    while (pos_ < text_.size()) {
      const size_t backslash = std::min(text_.find('\\', pos_), text_.size());
      out_ += text_.substr(pos_, backslash - pos_);
      pos_ = backslash + 1;
      if (backslash < text_.size()) escape();
    }
    return std::move(out_);
  }

 private:
  void escape() {
    const char c = text_[pos_];
    if (static_cast<unsigned char>(c) >= 0x80) return spell_out();
    ++pos_;
    if (c == '\n') return;
    if (const char plain = simple_escape(c)) {
      out_ += plain;
    } else if (c >= '0' && c <= '7') {
      octal();
    } else if (c == 'x' || c == 'u' || c == 'U') {
      hex(c, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      fail_syntax(line_, "\\N escapes in a string are not supported");
    } else {
      out_ += '\\';
      out_ += c;
    }
  }

  // Python reads a backslash before a character beyond ASCII as the backslash of the character's
  // own escape.
  void spell_out() {
    const auto c = static_cast<uint32_t>(utf8::next(text_, pos_));
    out_ += c < 0x100     ? fmt::format("\\x{:02x}", c)
            : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                          : fmt::format("\\U{:08x}", c);
  }

  void octal() {
    uint32_t value = 0;
    const size_t end = std::min(pos_ + 2, text_.size());
    for (--pos_; pos_ < end && text_[pos_] >= '0' && text_[pos_] <= '7'; ++pos_) {
      value = value * 8 + static_cast<uint32_t>(text_[pos_] - '0');
    }
    utf8::append(out_, value);
  }

  void hex(char kind, size_t digits) {
    uint32_t value = 0;
    const std::string_view text = text_.substr(pos_, digits);
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.size() != digits || result.ptr != text.data() + digits) {
      fail_syntax(line_, "truncated \\{} escape in a string", kind);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      fail_syntax(line_, "\\{}{} in a string is no character", kind, text);
    }
    utf8::append(out_, value);
    pos_ += digits;
  }

  std::string_view text_;
  int line_;
  size_t pos_ = 0;
  std::string out_;
};

}  // namespace

std::string unescape(std::string_view literal, int line) {
  return Unescaper(literal, line).run();
}

}  // namespace braid::jinja
