#include "braid/grammar/character_set.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid {
namespace {

constexpr uint32_t kLast = 0x10ffff;
constexpr std::pair<uint32_t, uint32_t> kSurrogates{0xd800, 0xdfff};

}  // namespace

std::vector<uint32_t> characters_of(std::string_view text) {
  std::vector<uint32_t> all;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : -1;
    if (more < 0 || i + static_cast<size_t>(more) >= text.size() + (more == 0 ? 1 : 0)) return {};
    uint32_t value = more == 0 ? lead : lead & (0x3fu >> more);
    for (int k = 1; k <= more; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + static_cast<size_t>(k)]);
      if ((byte & 0xc0) != 0x80) return {};
      value = value << 6 | (byte & 0x3f);
    }
    if (value > kLast) return {};
    all.push_back(value);
    i += static_cast<size_t>(more) + 1;
  }
  return all;
}

std::string text_of(uint32_t c) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | c >> 6), byte(0x80 | (c & 0x3f))};
  if (c < 0x10000)
    return {byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f))};
  return {byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 0x3f)), byte(0x80 | (c >> 6 & 0x3f)),
          byte(0x80 | (c & 0x3f))};
}

CharacterSet CharacterSet::digits() {
  CharacterSet set;
  set.add('0', '9');
  return set;
}

CharacterSet CharacterSet::word() {
  CharacterSet set = digits();
  set.add('a', 'z');
  set.add('A', 'Z');
  set.add('_', '_');
  return set;
}

CharacterSet CharacterSet::ascii_blanks() {
  CharacterSet set;
  set.add('\t', '\r');
  set.add(' ', ' ');
  return set;
}

CharacterSet CharacterSet::blanks() {
  CharacterSet set = ascii_blanks();
  set.add(0x1c, 0x1f);
  set.add(0x85, 0x85);
  set.add(0xa0, 0xa0);
  set.add(0x1680, 0x1680);
  set.add(0x2000, 0x200a);
  set.add(0x2028, 0x2029);
  for (const uint32_t c : {0x202fu, 0x205fu, 0x3000u, 0xfeffu}) set.add(c, c);
  return set;
}

CharacterSet CharacterSet::line_ends() {
  CharacterSet set;
  set.add('\n', '\n');
  set.add('\r', '\r');
  set.add(0x2028, 0x2029);
  return set;
}

CharacterSet CharacterSet::escaped_in_json() {
  CharacterSet set;
  set.add(0, 0x1f);
  set.add('"', '"');
  set.add('\\', '\\');
  return set;
}

void CharacterSet::add(uint32_t first, uint32_t last) {
  ranges_.emplace_back(first, last);
  std::ranges::sort(ranges_);
  std::vector<std::pair<uint32_t, uint32_t>> joined;
  for (const auto& range : ranges_) {
    if (!joined.empty() && range.first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, range.second);
    } else {
      joined.push_back(range);
    }
  }
  ranges_ = std::move(joined);
}

void CharacterSet::add(const CharacterSet& other) {
  for (const auto& [first, last] : other.ranges_) add(first, last);
}

void CharacterSet::remove(const CharacterSet& other) {
  CharacterSet rest = *this;
  rest.invert();
  rest.add(other);
  rest.invert();
  *this = std::move(rest);
}

void CharacterSet::invert() {
  add(kSurrogates.first, kSurrogates.second);
  std::vector<std::pair<uint32_t, uint32_t>> others;
  uint32_t from = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > from) others.emplace_back(from, first - 1);
    from = last + 1;
  }
  if (from <= kLast) others.emplace_back(from, kLast);
  ranges_ = std::move(others);
}

std::string CharacterSet::regex() const {
  // xgrammar takes a ^ at a class's begin for an inversion, however it is spelled.
  std::string out, caret;
  const auto put = [&](uint32_t first, uint32_t last) {
    if (first > last) return;
    out += first == last ? fmt::format("\\u{{{:x}}}", first)
                         : fmt::format("\\u{{{:x}}}-\\u{{{:x}}}", first, last);
  };
  for (auto [first, last] : ranges_) {
    if (first == '^') {
      caret = "\\^";
      ++first;
    }
    put(first, last);
  }
  if (out.empty()) return caret;
  return "[" + out + caret + "]";
}

}  // namespace braid
