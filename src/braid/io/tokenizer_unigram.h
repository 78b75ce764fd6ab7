#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer_spec.h"

namespace braid {

// The unigram model: of all ways to spell a text in pieces, the way whose log probabilities sum up
// to the most. A character without a piece counts as the unknown token, at 10 below the least
// likely piece; a run of such characters is one token, or bytes where the model falls back to them.
// Source: Kudo, 2018, section 3.2; penalty and runs: SentencePiece.
class Unigram {
 public:
  // `spec` and `flags` (TokenFlags, [V]) must outlive the model. Special tokens are no pieces.
  // Fails with kMalformed on a log probability that is not finite, or without an unknown token.
  Unigram(const TokenizerSpec& spec, std::span<const uint8_t> flags);

  // Appends the ids for `text`, a word from the pre-tokenizer. Cost: bytes times the longest
  // piece's length.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  struct Entry {
    std::string_view piece;
    int32_t id;
  };
  // Calls found(size, id) for each piece that `text` begins with, shortest first.
  template <class Found>
  void prefixes(std::string_view text, const Found& found) const;
  int32_t find(std::string_view piece) const;  // -1: there is none

  const TokenizerSpec& spec_;
  std::vector<Entry> entries_;  // sorted by piece, each piece once
  double unknown_score_ = 0;
  std::vector<int32_t> bytes_;  // [256], ids of <0xNN>; empty: no fallback
};

}  // namespace braid
