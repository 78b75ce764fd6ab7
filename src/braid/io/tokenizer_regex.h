#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

// A part of a text cut by a pattern: a match, perhaps empty, or a gap between matches.
struct RegexCut {
  std::string_view text;
  bool match = false;
};

// A compiled regular expression in the dialect of tokenizer.json: Oniguruma's own syntax over
// UTF-8. The pattern comes from a model file and is not trusted: its matching is bounded in steps
// and memory. Immutable, shared freely.
class Regex {
 public:
  // Fails with kUnsupported, with Oniguruma's reason, where the pattern does not compile.
  explicit Regex(const std::string& pattern);

  // Appends the matches and gaps of `text`, from left to right; joined they are the text. Bytes
  // that are not UTF-8 never match and end the text on both sides. Fails with kResource where
  // matching takes more than the bounds.
  void cut(std::string_view text, std::vector<RegexCut>& out) const;

 private:
  class Search;

  std::string pattern_;
  std::shared_ptr<const void> code_;
};

}  // namespace braid
