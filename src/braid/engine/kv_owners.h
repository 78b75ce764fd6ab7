#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "braid/parallel/attention/sequence_layout.h"

namespace braid {

// Which rank's cache has the key of each token, where tokens are divided over ranks. Tokens are
// told apart by the slot that their sequence's pages give them. Ranks keep keys in one of two ways:
// - each rank has room for the keys that it holds, in slots of its own (held_at);
// - each rank has room for all keys under the same numbers, so that rank 0 can be given copies.
class KvOwners {
 public:
  // Room for all `slots` on every rank.
  KvOwners(int ranks, int64_t slots) : KvOwners(ranks, slots, 0) {}
  // Each rank holds `room` keys; 0: all. Ranks have room for all slots together.
  KvOwners(int ranks, int64_t slots, int64_t room);

  int ranks() const { return ranks_; }
  bool apart() const { return room_ > 0; }

  // Rank `rank` writes it, and nobody else has what it writes. The rank has room.
  void write(int32_t slot, int rank);
  // Those of a sequence's cached slots that nobody has written, as at a depth that a benchmark
  // supposes, are spread over the ranks. Costs next to nothing where all are written.
  void adopt(std::span<const int32_t> slots);
  // Whether each of the slots [begin, end) is written.
  bool written(int64_t begin, int64_t end) const;
  // Nobody holds what was there.
  void forget(int32_t slot);
  void copy_to_first(int32_t slot) { first_.at(static_cast<size_t>(slot)) = true; }

  bool on_first(int32_t slot) const { return first_.at(static_cast<size_t>(slot)); }
  int owner(int32_t slot) const { return owner_[static_cast<size_t>(slot)]; }
  // The slot in its owner's cache.
  int32_t held_at(int32_t slot) const { return apart() ? held_[static_cast<size_t>(slot)] : slot; }
  // Slots of a rank's cache that were used so far, on the rank that used most.
  int64_t used() const;
  // Keys that a rank has room for yet.
  int64_t left(int rank) const;
  // The rank with most room, the first of several.
  int roomiest() const;

  // Where the keys of a sequence are: `slots` of its positions from 0 on.
  SequenceLayout layout(std::span<const int32_t> slots) const;
  // Those of them that rank 0 has no copy of.
  SequenceLayout missing_on_first(std::span<const int32_t> slots) const;

 private:
  // A rank's own slots: those from `next` on were never used.
  struct Own {
    int64_t next = 0;
    std::vector<int32_t> free;  // a heap, the lowest on top
  };

  int ranks_;
  int64_t room_;
  std::vector<int16_t> owner_;  // [slots], -1: nobody
  std::vector<bool> first_;     // [slots] rank 0 has it too
  std::vector<int32_t> held_;   // [slots] where each rank has slots of its own
  std::vector<Own> own_;        // [ranks] likewise
};

// Appends one position to a rank's runs.
void append(SequenceLayout& layout, int rank, int64_t position);

}  // namespace braid
