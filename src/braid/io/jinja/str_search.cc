#include "braid/io/jinja/str_search.h"

#include <algorithm>
#include <cstring>

#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Where the last character before `end` begins.
size_t last_character(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

char32_t character_before(std::string_view text, size_t end) {
  size_t pos = last_character(text, end);
  return utf8::next(text, pos);
}

size_t skip_space(std::string_view text, size_t pos) {
  for (size_t next = pos; next < text.size(); pos = next) {
    if (!utf8::is_space(utf8::next(text, next))) break;
  }
  return pos;
}

size_t skip_space_back(std::string_view text, size_t end) {
  while (end > 0 && utf8::is_space(character_before(text, end))) end = last_character(text, end);
  return end;
}

size_t find_space(std::string_view text, size_t pos) {
  for (size_t next = pos; next < text.size(); pos = next) {
    if (utf8::is_space(utf8::next(text, next))) break;
  }
  return pos;
}

size_t find_space_back(std::string_view text, size_t end) {
  while (end > 0 && !utf8::is_space(character_before(text, end))) end = last_character(text, end);
  return end;
}

bool among(char32_t c, std::string_view characters) {
  for (size_t pos = 0; pos < characters.size();) {
    if (utf8::next(characters, pos) == c) return true;
  }
  return false;
}

std::vector<std::string_view> split_space_right(std::string_view text, size_t limit) {
  std::vector<std::string_view> parts;
  size_t end = skip_space_back(text, text.size());
  for (; end > 0 && parts.size() < limit; end = skip_space_back(text, end)) {
    const size_t begin = find_space_back(text, end);
    parts.push_back(text.substr(begin, end - begin));
    end = begin;
  }
  if (end > 0) parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at_right(std::string_view text, std::string_view separator,
                                             size_t limit) {
  std::vector<std::string_view> parts;
  while (parts.size() < limit) {
    const size_t at = text.rfind(separator);
    if (at == kNone) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// Every gap between characters counts as an occurrence of the empty text.
Value interleave(Runtime& runtime, std::string_view text, std::string_view to, int64_t limit,
                 bool markup) {
  Text out(runtime);
  size_t pos = 0;
  for (;; --limit) {
    if (limit != 0) out.append(to);
    if (pos >= text.size()) return out.value(markup);
    if (limit == 0) break;
    const size_t begin = pos;
    utf8::next(text, pos);
    out.append(text.substr(begin, pos - begin));
  }
  out.append(text.substr(pos));
  return out.value(markup);
}

}  // namespace

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  const void* at = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : kNone;
}

int64_t count_text(std::string_view text, std::string_view part) {
  if (part.empty()) return utf8::count(text) + 1;
  int64_t n = 0;
  for (size_t at = find_text(text, part); at != kNone; ++n) {
    at = find_text(text, part, at + part.size());
  }
  return n;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       size_t limit, bool from_right) {
  if (from_right) return split_at_right(text, separator, limit);
  std::vector<std::string_view> parts;
  while (parts.size() < limit) {
    const size_t at = find_text(text, separator);
    if (at == kNone) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_space(std::string_view text, size_t limit, bool from_right) {
  if (from_right) return split_space_right(text, limit);
  std::vector<std::string_view> parts;
  size_t pos = skip_space(text, 0);
  for (; pos < text.size() && parts.size() < limit; pos = skip_space(text, pos)) {
    const size_t end = find_space(text, pos);
    parts.push_back(text.substr(pos, end - pos));
    pos = end;
  }
  if (pos < text.size()) parts.push_back(text.substr(pos));
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    const char32_t c = utf8::next(text, pos);
    if (!utf8::is_line_end(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(begin, (keep_ends ? pos : at) - begin));
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

Value replace_text(Runtime& runtime, std::string_view text, std::string_view from,
                   std::string_view to, int64_t limit, bool markup) {
  if (from.empty()) return interleave(runtime, text, to, limit, markup);
  Text out(runtime);
  size_t pos = 0;
  for (; limit != 0; --limit) {
    const size_t at = find_text(text, from, pos);
    if (at == kNone) break;
    out.append(text.substr(pos, at - pos));
    out.append(to);
    pos = at + from.size();
  }
  out.append(text.substr(pos));
  return out.value(markup);
}

std::string_view strip_text(std::string_view text, std::optional<std::string_view> characters,
                            bool left, bool right) {
  const auto drop = [&](char32_t c) {
    return characters ? among(c, *characters) : utf8::is_space(c);
  };
  while (left && !text.empty()) {
    size_t next = 0;
    if (!drop(utf8::next(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty() && drop(character_before(text, text.size()))) {
    text = text.substr(0, last_character(text, text.size()));
  }
  return text;
}

std::string title_case(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const bool cased = utf8::is_cased(utf8::next(text, pos));
    const std::string_view one = text.substr(begin, pos - begin);
    out += inside ? utf8::lower(one) : utf8::capitalize(one);
    inside = cased;
  }
  return out;
}

bool all_cased(std::string_view text, bool (*wanted)(char32_t)) {
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = utf8::next(text, pos);
    if (!utf8::is_cased(c)) continue;
    if (!wanted(c)) return false;
    any = true;
  }
  return any;
}

std::optional<Window> text_window(Runtime& runtime, const Str& text, const Bound& bound) {
  runtime.step(text.text.size() / 64);
  const auto place = [&](size_t i, int64_t otherwise) {
    int64_t at = bound.given(i) ? bound.integer(i, otherwise) : otherwise;
    if (at < 0) at = std::max<int64_t>(at + text.length, 0);
    return at;
  };
  const int64_t start = place(1, 0);
  const int64_t end = std::min(place(2, text.length), text.length);
  if (start > end) return std::nullopt;
  const size_t from = utf8::offset(text.text, start);
  const size_t to = utf8::offset(text.text, end);
  return Window{std::string_view(text.text).substr(from, to - from), start};
}

}  // namespace braid::jinja
