#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer_merges.h"
#include "braid/io/tokenizer_spec.h"
#include "braid/io/tokenizer_vocab.h"

namespace braid {

// Working memory for an encode call: the words met so far, and memory reused for each word.
class BpeScratch {
 public:
  // Keeps the ids of short words if `text_bytes`, the size of the whole input, makes keeping pay.
  explicit BpeScratch(size_t text_bytes);

 private:
  friend class Bpe;
  struct Symbol {
    uint32_t begin;  // in the word; `size` 0: merged into its left neighbour
    uint32_t size;
    int32_t id;
    int32_t prev;
    int32_t next;
  };
  struct Candidate {
    uint64_t key;   // rank, then place
    uint32_t size;  // bytes of the pair; a different size means the pair has changed
    bool operator<(const Candidate& other) const { return key > other.key; }  // smallest on top
  };
  static constexpr size_t kCachedBytes = 22;
  // A word and its ids in 64 bytes.
  struct Cached {
    uint8_t size = 0;
    uint8_t count = 0;
    std::array<char, kCachedBytes> text;
    std::array<int32_t, 10> ids;
  };
  std::vector<Cached> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Merge> merges_;  // merges_[i]: of symbols i and i + 1
  std::vector<Candidate> heap_;
};

// Byte pair encoding of a word: the neighbouring pair with the smallest rank (leftmost among
// equals) becomes a token, until no pair is left. Source: Sennrich et al., 2016, section 3.2;
// scores and byte fallback: SentencePiece.
class Bpe {
 public:
  // `spec`, `vocab` and `flags` (TokenFlags, [V]) must outlive the model. Fails with kMalformed as
  // MergeTable does.
  Bpe(const TokenizerSpec& spec, const Vocabulary& vocab, std::span<const uint8_t> flags);

  // Appends the ids of `text`, a word of the pre-tokenizer, without special tokens except the
  // unknown token. O(n log n) in bytes.
  void encode(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids) const;

 private:
  using Symbol = BpeScratch::Symbol;
  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void spell(std::string_view word, std::vector<Symbol>& symbols) const;
  Merge find(std::string_view word, const Symbol& left, const Symbol& right) const;
  void merge_short(std::string_view word, BpeScratch& scratch) const;
  void merge_long(std::string_view word, BpeScratch& scratch) const;
  int32_t whole_word(std::string_view word) const;
  int32_t plain(std::string_view piece) const;  // the piece's id; -1: none, or special

  const TokenizerSpec& spec_;
  const Vocabulary& vocab_;
  std::span<const uint8_t> flags_;
  MergeTable merges_;
  std::vector<uint32_t> score_ranks_;  // [V]; empty: merges_ ranks
  size_t longest_piece_ = 0;
  // No piece holds a "▁" behind another character, so no merge crosses into a "▁": the text may be
  // cut there without changing ids.
  bool cut_at_marks_ = false;
  std::array<int32_t, 256> bytes_;  // byte level: each byte's id; byte fallback: id of <0xNN>
  std::array<int32_t, 128> ascii_;  // id of each ASCII character
  std::array<int32_t, 256> ends_;   // byte level: each byte's id at the end of a word
};

}  // namespace braid
