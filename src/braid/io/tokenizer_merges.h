#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "braid/io/tokenizer_spec.h"
#include "braid/io/tokenizer_vocab.h"

namespace braid {

// A merge: a pair of tokens that becomes a single token.
struct Merge {
  uint32_t rank = UINT32_MAX;  // the smallest goes first; UINT32_MAX: these do not merge
  int32_t id = -1;
};

// (left id, right id) -> Merge, one flat table with linear probing.
class MergeTable {
 public:
  // A later pair replaces an equal earlier one, as in Hugging Face. Fails with kMalformed where the
  // vocabulary lacks a part or the whole. Pairs that make a special token are left out: `flags` are
  // TokenFlags, [V].
  MergeTable(std::span<const MergePair> merges, const Vocabulary& vocab,
             std::span<const uint8_t> flags);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = UINT64_MAX;
    Merge merge;
  };
  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
};

}  // namespace braid
