#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer_spec.h"

namespace braid {

// A cut of a text: an added token, or (id < 0) text between tokens.
struct AddedCut {
  int32_t id = -1;
  std::string_view text;
};

// Finds added tokens in text: at each place the longest token that starts there, from left to
// right. Cost: the text's bytes times the longest token's length, at worst.
class AddedTokens {
 public:
  AddedTokens() = default;
  // texts[i] is tokens[i] as spelled in the searched text; an empty one never matches.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts);

  // Special tokens are cut out only with `special` set and without a user's bytes: `own` is as in
  // MarkedText, or empty. The text of a special token that is not cut out still hides shorter
  // tokens inside.
  void cut(std::string_view text, bool special, std::string_view own,
           std::vector<AddedCut>& out) const;

  // Sets own[i] to 1 for each byte in an occurrence of a token, from any start. True if any occurs.
  // `own` is [bytes of text].
  bool cover(std::string_view text, std::string& own) const;

 private:
  struct Entry {
    std::string text;
    AddedToken token;
  };
  const Entry* longest(std::string_view text) const;

  std::vector<Entry> entries_;  // sorted by text
  bool starts_[256] = {};
  bool any_plain_ = false;  // some token is not special
};

}  // namespace braid
