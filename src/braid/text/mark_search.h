#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace braid {

inline bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// The first character in `text` from `begin` on that is no white space, or the text's length.
inline size_t skip_blanks(std::string_view text, size_t begin = 0) {
  while (begin < text.size() && is_blank(text[begin])) ++begin;
  return begin;
}

// Length of `text`'s end that may still become `mark`: the longest end that is a beginning of the
// mark, but not the whole mark.
inline size_t begun_mark(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

// `text` without the white space at the end of its first `size` characters.
inline size_t trim_blanks(std::string_view text, size_t size) {
  while (size > 0 && is_blank(text[size - 1])) --size;
  return size;
}

}  // namespace braid
