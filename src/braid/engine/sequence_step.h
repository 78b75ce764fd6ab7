#pragma once

#include <vector>

#include "braid/engine/kv_owners.h"
#include "braid/engine/step_planner.h"

namespace braid {

// A step for a single sequence with tokens divided over ranks: the tokens' ranks, and the host's
// inputs for each rank. New tokens are placed in zigzag to balance causal attention; keys of
// earlier steps stay in place.
class SequenceStep : public StepInputs {
 public:
  // Places the new keys in `owners`. `batch` has one sequence, and must outlive this object. If
  // owners.apart(), each of the first `ranks` ranks has room for a part of the tokens, and no
  // further rank holds keys of the sequence.
  SequenceStep(const Batch& batch, int64_t page_size, KvOwners& owners, int ranks);

  const SequenceLayout& q() const { return q_; }
  const SequenceLayout& kv() const { return kv_; }

  // The inputs of a rank's executor.
  void write(const Executor& executor, int rank) const override;

 private:
  const Batch& batch_;
  int64_t cached_;
  std::vector<int32_t> slots_;  // [positions from 0 on], slots in the owners' caches
  SequenceLayout q_, kv_;
  std::vector<int32_t> rows_;  // rows of the scored tokens, counted over the ranks in order
};

// Copies a sequence's missing keys to rank 0.
class KvGather : public StepInputs {
 public:
  KvGather(std::vector<int32_t> slots, const KvOwners& owners)
      : slots_(std::move(slots)), kv_(owners.missing_on_first(slots_)) {}

  bool empty() const { return kv_.length() == 0; }
  const SequenceLayout& kv() const { return kv_; }
  void write(const Executor& executor, int rank) const override;
  void record(KvOwners& owners) const;

 private:
  std::vector<int32_t> slots_;
  SequenceLayout kv_;
};

// The slot of a sequence's token.
inline int32_t slot_of(std::span<const int32_t> pages, int64_t page_size, int64_t position) {
  return static_cast<int32_t>(pages[position / page_size] * page_size + position % page_size);
}
// Slots for the first `tokens` tokens of a sequence.
std::vector<int32_t> slots_of(std::span<const int32_t> pages, int64_t page_size, int64_t tokens);

}  // namespace braid
