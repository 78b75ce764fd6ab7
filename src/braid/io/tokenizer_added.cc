#include "braid/io/tokenizer_added.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

// The last character of a non-empty text.
Utf8Char last_char(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (text[at] & 0xc0) == 0x80) --at;
  const Utf8Char c = decode_utf8(text, at);
  return at + c.size == text.size() ? c : Utf8Char{};
}

bool is_space(const Utf8Char& c) {
  return c.status == Utf8Status::kValid && char_class(c.code) == CharClass::kSpace;
}

bool is_word(const Utf8Char& c) {
  return c.status == Utf8Status::kValid && is_word_char(c.code);
}

bool any_own(std::string_view own, size_t begin, size_t end) {
  return !own.empty() && own.substr(begin, end - begin).find('\1') != own.npos;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts) {
  BRAID_CHECK(tokens.size() == texts.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (texts[i].empty()) continue;
    entries_.push_back({texts[i], tokens[i]});
    starts_[static_cast<uint8_t>(texts[i][0])] = true;
    any_plain_ |= !tokens[i].special;
  }
  std::ranges::stable_sort(entries_, {}, &Entry::text);
}

const AddedTokens::Entry* AddedTokens::longest(std::string_view text) const {
  // Entries that start with text[0, depth) form a range that narrows with depth.
  auto range = std::ranges::subrange(entries_.begin(), entries_.end());
  const Entry* found = nullptr;
  for (size_t depth = 0;; ++depth) {
    if (range.empty()) return found;
    if (range.front().text.size() == depth) {
      found = &range.front();
      while (!range.empty() && range.front().text.size() == depth) range.advance(1);
      if (range.empty()) return found;
    }
    if (depth == text.size()) return found;
    range = std::ranges::equal_range(range, static_cast<uint8_t>(text[depth]), {},
                                     [&](const Entry& e) -> uint8_t { return e.text[depth]; });
  }
}

bool AddedTokens::cover(std::string_view text, std::string& own) const {
  bool found = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const Entry* entry =
        starts_[static_cast<uint8_t>(text[at])] ? longest(text.substr(at)) : nullptr;
    if (!entry) continue;
    own.replace(at, entry->text.size(), entry->text.size(), '\1');
    found = true;
  }
  return found;
}

void AddedTokens::cut(std::string_view text, bool special, std::string_view own,
                      std::vector<AddedCut>& out) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size() && (special || any_plain_);) {
    const Entry* entry =
        starts_[static_cast<uint8_t>(text[at])] ? longest(text.substr(at)) : nullptr;
    if (!entry) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + entry->text.size();
    at = end;
    const AddedToken& token = entry->token;
    if (token.special && (!special || any_own(own, begin, end))) continue;
    if (token.single_word && ((begin > 0 && is_word(last_char(text.substr(0, begin)))) ||
                              (end < text.size() && is_word(decode_utf8(text, end))))) {
      continue;
    }
    if (token.lstrip) {
      while (begin > done) {
        const Utf8Char c = last_char(text.substr(0, begin));
        if (!is_space(c)) break;
        begin -= c.size;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Utf8Char c = decode_utf8(text, end);
        if (!is_space(c)) break;
        end += c.size;
      }
      at = end;
    }
    if (begin > done) out.push_back({-1, text.substr(done, begin - done)});
    out.push_back({token.id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) out.push_back({-1, text.substr(done)});
}

}  // namespace braid
