#pragma once

#include <span>
#include <vector>

#include "braid/program/op.h"
#include "braid/schedule/micro_batch.h"

namespace braid {

constexpr int64_t kPageSize = 64;  // tokens in a page of the KV cache, unless a caller says other

// The tokens in a step, over all its sequences. Every rank has the same batch.
class Batch {
 public:
  explicit Batch(int64_t page_size) : page_size_(page_size) {}

  void clear();  // keeps its memory: a step like the last allocates nothing; not exact

  // Adds the next tokens of a sequence with `cached` tokens already in the KV cache; `pages` hold
  // room for all tokens. Logits are wanted for the last `scored` tokens. `group`: the group with
  // the sequence's keys (`--dp`), or the rank whose own the sequence is (LocalStep); -1: any.
  void add(std::span<const int32_t> tokens, int64_t cached, std::span<const int32_t> pages,
           int64_t scored, int group = -1);

  // Whether a prompt's far keys all count, also where a planner thins them.
  void set_exact(bool exact) { exact_ = exact; }
  bool exact() const { return exact_; }

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
  std::vector<int32_t> pages_;             // all sequences, in order
  std::vector<int32_t> page_start_ = {0};  // [S + 1] into pages_
  std::vector<int> groups_;                // [S]
  int64_t pages_end_ = 0;
  bool exact_ = false;
};

}  // namespace braid
