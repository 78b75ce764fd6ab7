#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace braid {

// A compiled regular expression over UTF-8 (PCRE2, Unicode classes). The pattern comes from a model
// file and is not trusted: its matching is bounded in steps and memory. Immutable, shared freely.
class Regex {
 public:
  // Fails with kUnsupported, naming the place, where the pattern does not compile.
  explicit Regex(const std::string& pattern);

  // Cuts text into matches and the gaps between them, from left to right; none is empty. Fails with
  // kResource where matching takes more than the bounds. Bytes that are not UTF-8 never match.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  std::string pattern_;
  std::shared_ptr<const void> code_;
};

}  // namespace braid
