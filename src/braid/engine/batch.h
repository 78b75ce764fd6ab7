#pragma once

#include <span>
#include <vector>

#include "braid/program/op.h"
#include "braid/schedule/micro_batch.h"

namespace braid {

// The tokens that one step computes, over all its sequences. The same on every rank.
class Batch {
 public:
  explicit Batch(int64_t page_size) : page_size_(page_size) {}

  void clear();  // keeps its memory, so that a step like the last one allocates nothing

  // Adds the next tokens of a sequence that has `cached` tokens in the KV cache already; `pages`
  // hold room for all of them. Logits are wanted for the last `scored` of the tokens. `group`: the
  // group of ranks with the sequence's keys (`--dp`); -1: any group.
  void add(std::span<const int32_t> tokens, int64_t cached, std::span<const int32_t> pages,
           int64_t scored, int group = -1);

  const Extents& extents() const { return work_.extents; }
  const Work& work() const { return work_; }
  BatchInfo info(int ranks) const { return {sequences_, std::ssize(tokens_), ranks}; }

  std::span<const SequenceInfo> sequences() const { return sequences_; }
  std::span<const int32_t> pages_of(size_t sequence) const;  // in order
  int group_of(size_t sequence) const { return groups_[sequence]; }
  std::span<const int32_t> tokens() const { return tokens_; }        // [T]
  std::span<const int32_t> positions() const { return positions_; }  // [T]
  std::span<const int32_t> slots() const { return slots_; }          // [T] in the KV cache
  std::span<const int32_t> rows() const { return rows_; }            // [R] scored tokens
  // Every page that the step reads or writes has a lower number.
  int64_t pages_end() const { return pages_end_; }

 private:
  int64_t page_size_;
  Work work_;
  std::vector<SequenceInfo> sequences_;    // [S]
  std::vector<int32_t> tokens_;            // [T]
  std::vector<int32_t> positions_;         // [T]
  std::vector<int32_t> slots_;             // [T]
  std::vector<int32_t> rows_;              // [R]
  std::vector<int32_t> pages_;             // of all sequences, one after the other
  std::vector<int32_t> page_start_ = {0};  // [S + 1] into pages_
  std::vector<int> groups_;                // [S]
  int64_t pages_end_ = 0;
};

}  // namespace braid
