#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "braid/parallel/attention/sequence_layout.h"

namespace braid {

// Which rank's cache has the key of each slot, where tokens are divided over ranks. Slots have the
// same numbers on all ranks, and room on each.
class KvOwners {
 public:
  KvOwners(int ranks, int64_t slots)
      : ranks_(ranks), owner_(static_cast<size_t>(slots)), first_(static_cast<size_t>(slots)) {}

  // Rank `rank` writes it, and nobody else has what it writes.
  void write(int32_t slot, int rank) {
    owner_.at(static_cast<size_t>(slot)) = static_cast<int16_t>(rank);
    first_[static_cast<size_t>(slot)] = rank == 0;
  }
  void copy_to_first(int32_t slot) { first_.at(static_cast<size_t>(slot)) = true; }

  bool on_first(int32_t slot) const { return first_.at(static_cast<size_t>(slot)); }

  // Where the keys of a sequence are: `slots` of its positions from 0 on.
  SequenceLayout layout(std::span<const int32_t> slots) const;
  // Those of them that rank 0 has no copy of.
  SequenceLayout missing_on_first(std::span<const int32_t> slots) const;

 private:
  int ranks_;
  std::vector<int16_t> owner_;  // [slots]
  std::vector<bool> first_;     // [slots] rank 0 has it too
};

// Appends one position to a rank's runs.
void append(SequenceLayout& layout, int rank, int64_t position);

}  // namespace braid
