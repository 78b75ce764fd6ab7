#include "braid/io/jinja/utf8.h"

#include <utf8proc.h>

namespace braid::jinja::utf8 {
namespace {

constexpr char32_t kSharpS = 0xDF;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t to_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

void append_upper(std::string& out, char32_t c) {
  if (c == kSharpS) {
    out += "SS";
  } else {
    append(out, to_upper(c));
  }
}

}  // namespace

bool valid(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t pos = 0; pos < text.size();) {
    if (bytes[pos] < 0x80) {
      ++pos;
      continue;
    }
    utf8proc_int32_t c;
    const auto length =
        utf8proc_iterate(bytes + pos, static_cast<utf8proc_ssize_t>(text.size() - pos), &c);
    if (length <= 0) return false;
    pos += static_cast<size_t>(length);
  }
  return true;
}

char32_t next(std::string_view text, size_t& pos) {
  const auto first = static_cast<unsigned char>(text[pos++]);
  if (first < 0x80) return first;
  char32_t c = first >= 0xF0 ? first & 0x07 : first >= 0xE0 ? first & 0x0F : first & 0x1F;
  while (pos < text.size() && is_continuation(text[pos])) {
    c = c << 6 | (static_cast<unsigned char>(text[pos++]) & 0x3F);
  }
  return c;
}

void append(std::string& out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

int64_t count(std::string_view text) {
  int64_t n = 0;
  for (char byte : text) n += !is_continuation(byte);
  return n;
}

size_t offset(std::string_view text, int64_t index) {
  size_t pos = 0;
  for (; index > 0; --index) next(text, pos);
  return pos;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    next(text, pos);
    characters.push_back(text.substr(begin, pos - begin));
  }
  return characters;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL;
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN && (kind < UTF8PROC_CATEGORY_ZS);
}

bool is_word(char32_t c) {
  return c == '_' || is_letter(c) || is_numeric(c);
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) append_upper(out, next(text, pos));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) append(out, to_lower(next(text, pos)));
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  size_t pos = 0;
  const char32_t first = next(text, pos);
  std::string out;
  if (first == kSharpS) {
    out = "Ss";
  } else {
    append(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(first))));
  }
  return out + lower(text.substr(pos));
}

}  // namespace braid::jinja::utf8
