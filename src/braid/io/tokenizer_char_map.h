#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

// The character map of a SentencePiece model: texts of a few characters, and their results
// (nmt_nfkc has full-width letters, ligatures, white space). A trie in an array of units (Darts
// double array), and the results behind the array as a string.
class CharMap {
 public:
  // `blob` is the model's precompiled_charsmap: the trie's size in bytes as u32, the trie's units
  // u32 [size / 4], texts that end in 0. It is copied. Fails with kMalformed where the sizes do not
  // fit.
  explicit CharMap(std::string_view blob);

  // The result for the shortest entry at the begin of `text`; nothing without an entry.
  std::optional<std::string_view> find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace braid
