#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer_char_map.h"
#include "braid/io/tokenizer_regex.h"
#include "braid/io/tokenizer_spec.h"

namespace braid {

// Text, with marks for a user's bytes, which must not spell special tokens.
struct MarkedText {
  std::string text;
  std::string own;  // [bytes of text], 1 for a byte from a user; empty: none
};

// `text` less its marks: a character with a mark directly behind it is a user's own.
MarkedText unmark(std::string_view text, std::string_view mark);

// `text` with `mark` behind every character whose first byte `own` has set.
std::string mark_own(std::string_view text, std::string_view own, std::string_view mark);

// Prepared steps that change a text before the search for its tokens.
class Normalizer {
 public:
  // Fails with kMalformed on a step that replaces the empty text or has a broken map, with
  // kUnsupported on a pattern that does not compile.
  explicit Normalizer(const std::vector<NormalizeStep>& steps);

  bool empty() const { return stages_.empty(); }
  // Applies the steps in order. Text made from a user's own characters, even in part, is own.
  void apply(MarkedText& text) const;

 private:
  struct Stage {
    NormalizeStep step;
    std::optional<Regex> regex;
    std::optional<CharMap> map;
  };
  std::vector<Stage> stages_;
};

}  // namespace braid
