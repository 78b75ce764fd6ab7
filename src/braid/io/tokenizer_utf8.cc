#include "braid/io/tokenizer_utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "braid/base/error.h"

namespace braid {
namespace {

struct ClassRange {
  uint32_t begin;
  uint32_t end;
  CharClass kind;
};

using enum CharClass;
// Sorted, disjoint. A table of our own: libraries differ in their Unicode version, ids must not.
constexpr ClassRange kClasses[] = {
#include "braid/io/tokenizer_classes.inc"
};

struct LowerRange {
  uint32_t begin;
  uint32_t end;
  uint32_t step;
  int32_t delta;
};
constexpr LowerRange kLower[] = {
#include "braid/io/tokenizer_lower.inc"
};

CharClass find_class(char32_t code) {
  const auto* at = std::ranges::lower_bound(kClasses, code, {}, &ClassRange::end);
  return at != std::end(kClasses) && at->begin <= code ? at->kind : kOther;
}

constexpr auto kAscii = [] {
  std::array<CharClass, 128> classes{};
  for (char c = '0'; c <= '9'; ++c) classes[c] = kNumber;
  for (char c = 'a'; c <= 'z'; ++c) classes[c] = kLetter;
  for (char c = 'A'; c <= 'Z'; ++c) classes[c] = kLetter;
  for (char c = '\t'; c <= '\r'; ++c) classes[c] = kSpace;
  classes[' '] = kSpace;
  return classes;
}();

bool is_space(char32_t c) {
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Appends text[begin, end), valid UTF-8, in composed form.
void compose(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.size;
    utf8proc_int32_t parts[32];
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts,
                                           std::size(parts), UTF8PROC_DECOMPOSE, nullptr);
    BRAID_CHECK(n >= 0 && n <= static_cast<utf8proc_ssize_t>(std::size(parts)));
    codes.insert(codes.end(), parts, parts + n);
  }
  // Canonical order: runs of non-starters by class. (utf8proc's own sort is quadratic.)
  const auto order = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  for (size_t i = 0; i < codes.size();) {
    size_t end = i;
    while (end < codes.size() && order(codes[end]) != 0) ++end;
    if (end - i > 1)
      std::stable_sort(codes.begin() + i, codes.begin() + end,
                       [&](auto a, auto b) { return order(a) < order(b); });
    i = end + 1;
  }
  const auto n =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  BRAID_CHECK(n >= 0, "{}", n);
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(static_cast<char32_t>(codes[i]), out);
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, Utf8Status::kValid};
  if (lead < 0xc2 || lead > 0xf4) return {};
  const int size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and codes above U+10FFFF.
  uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  char32_t code = lead & (0x7f >> size);
  for (int i = 1; i < size; ++i) {
    if (at + i == text.size()) return {0xfffd, static_cast<uint8_t>(i), Utf8Status::kIncomplete};
    if (byte(i) < low || byte(i) > high) {
      return {0xfffd, static_cast<uint8_t>(i), Utf8Status::kInvalid};
    }
    code = code << 6 | (byte(i) & 0x3f);
    low = 0x80;
    high = 0xbf;
  }
  return {code, static_cast<uint8_t>(size), Utf8Status::kValid};
}

void append_utf8(char32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  out += static_cast<char>((0xf00 >> (more + 1)) | (code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
}

void append_lower(char32_t code, std::string& out) {
  if (code == 0x130) {  // capital i with a dot: two characters
    out += "i\u0307";
    return;
  }
  const auto* at = std::ranges::lower_bound(kLower, code, {}, &LowerRange::end);
  const bool found =
      at != std::end(kLower) && at->begin <= code && (code - at->begin) % at->step == 0;
  append_utf8(found ? code + static_cast<char32_t>(at->delta) : code, out);
}

size_t grapheme_end(std::string_view text, size_t at) {
  Utf8Char c = decode_utf8(text, at);
  utf8proc_int32_t state = 0;
  while (c.status == Utf8Status::kValid) {
    at += c.size;
    if (at == text.size()) return at;
    const Utf8Char next = decode_utf8(text, at);
    if (next.status != Utf8Status::kValid ||
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      return at;
    }
    c = next;
  }
  return at + c.size;
}

CharClass char_class(char32_t code) {
  if (code < 128) return kAscii[code];
  if (code >= 0x4e00 && code <= 0x9fff) return kLetter;  // CJK ideographs
  if (is_space(code)) return kSpace;
  return find_class(code);
}

ClassedChar classed_char(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 128) return {kAscii[lead], 1};
  const Utf8Char c = decode_utf8(text, at);
  if (c.status != Utf8Status::kValid) return {kOther, 1};
  return {char_class(c.code), c.size};
}

bool is_word_char(char32_t code) {
  if (code == 0x200c || code == 0x200d) return true;  // zero-width (non-)joiner
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;  // of the stretch not yet in `out`
  size_t at = 0;
  bool plain = true;  // below U+0300 nothing composes, decomposes to other NFC text, or reorders
  const auto flush = [&] {
    const std::string_view stretch = text.substr(begin, at - begin);
    if (plain) {
      out += stretch;
    } else {
      compose(stretch, out);
    }
  };
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.status != Utf8Status::kValid) {
      flush();
      out += text.substr(at, c.size);
      at += c.size;
      begin = at;
      plain = true;
      continue;
    }
    if (c.code >= 0x300) plain = false;
    at += c.size;
  }
  flush();
  return out;
}

}  // namespace braid
