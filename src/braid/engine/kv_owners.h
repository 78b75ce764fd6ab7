#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "braid/parallel/attention/sequence_layout.h"

namespace braid {

// Records the owner rank of each token's key, for tokens divided over ranks. A token is named by
// its slot in the sequence's pages. Two ways to keep keys:
// - apart: each rank has room for its own keys only, in slots of its own numbering (held_at);
// - together: each rank has room for all keys under the same slots, and rank 0 can hold copies.
class KvOwners {
 public:
  // Room for all `slots` on every rank.
  KvOwners(int ranks, int64_t slots) : KvOwners(ranks, slots, 0) {}
  // Each rank holds `room` keys; 0: all slots. Requires: ranks * room covers `slots`.
  KvOwners(int ranks, int64_t slots, int64_t room);

  int ranks() const { return ranks_; }
  bool apart() const { return room_ > 0; }
  int64_t room() const { return room_; }  // keys of a rank, if apart()

  // Makes `rank` the only owner of the slot. Requires: the rank has room.
  void write(int32_t slot, int rank);
  // Spreads the slots without an owner over the ranks, or gives all to `rank` if it has room: a
  // benchmark supposes cached tokens without writing them.
  void adopt(std::span<const int32_t> slots, int rank = -1);
  // Removes the slot's owner and copies.
  void forget(int32_t slot);
  // Before a token is written: forgets its slot and all behind it in the page, where no sequence
  // has keys any more. Lists of keys are then made anew once, not at each token.
  void forget_behind(int32_t slot, int64_t page_size);
  // How often slots in [begin, end), and few around, have lost their owner, if apart().
  uint32_t changes(int64_t begin, int64_t end) const;
  void copy_to_first(int32_t slot) { first_.at(slot) = true; }

  bool on_first(int32_t slot) const { return first_.at(slot); }
  int owner(int32_t slot) const { return owner_[slot]; }
  // The slot in its owner's cache.
  int32_t held_at(int32_t slot) const { return apart() ? held_[slot] : slot; }
  // Slots in use so far in a rank's cache, maximum over the ranks.
  int64_t used() const;
  // Keys that still fit on a rank.
  int64_t left(int rank) const;
  // The rank with most room; the lowest rank among equals.
  int roomiest() const;

  // Owners of a sequence's keys. `slots` [positions from 0 on].
  SequenceLayout layout(std::span<const int32_t> slots) const;
  // The part of layout() without a copy on rank 0.
  SequenceLayout missing_on_first(std::span<const int32_t> slots) const;

 private:
  // A rank's own slots: slots from `next` on are unused.
  struct Own {
    int64_t next = 0;
    std::vector<int32_t> free;  // a heap, the lowest on top
  };

  int ranks_;
  int64_t room_;
  std::vector<int16_t> owner_;     // [slots], -1: no owner
  std::vector<bool> first_;        // [slots], rank 0 has a copy
  std::vector<int32_t> held_;      // [slots], the slot in the owner's cache, if apart()
  std::vector<Own> own_;           // [ranks], if apart()
  std::vector<uint32_t> changes_;  // [ceil(slots / kBlock)], if apart()
};

// Appends one position to a rank's runs.
void append(SequenceLayout& layout, int rank, int64_t position);

}  // namespace braid
