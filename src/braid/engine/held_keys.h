#pragma once

#include <list>
#include <vector>

#include "braid/engine/kv_owners.h"

namespace braid {

// The slots of sequences' keys on each rank, by position. A list is kept from step to step: a
// decode step adds the new key, and does not walk all keys again.
class HeldKeys {
 public:
  // `owners`, which are apart(), outlive this. With `windowed` (a window other than 0) lists have
  // the keys' positions.
  HeldKeys(const KvOwners& owners, int64_t page_size, bool windowed);

  struct Sequence {
    int64_t length = 0;                           // keys over all ranks
    std::vector<std::vector<int32_t>> slots;      // [ranks], each [keys of the rank]
    std::vector<std::vector<int64_t>> positions;  // likewise, for windows alone
    std::vector<int32_t> pages;
    std::vector<uint32_t> changes;  // [pages] of the owners when the list was made
    uint64_t used = 0;              // the last step that asked
    uint64_t extended = 0;          // the last step that added a key

    int64_t held(int rank) const { return std::ssize(slots[rank]); }
    // How many of a rank's keys lie before a position. Needs positions.
    int64_t before(int rank, int64_t position) const;
    // A window's row of `begin` (attention_windows()) for the query at `position`; the list's first
    // key is number `first` in the rank's held_slots.
    int32_t begin(int rank, int64_t window, int64_t position, int64_t first = 0) const;
  };

  // Starts a step: lists that no step of late has asked for are dropped.
  void begin_step();
  // Whether the first `keys` keys, of the sequence with these pages, all have owners.
  bool complete(std::span<const int32_t> pages, int64_t keys);
  // The list of the sequence's first `keys` keys, which all have owners; for the caller to extend,
  // until another step. Cost: the pages, and the keys that no list has yet.
  Sequence& list(std::span<const int32_t> pages, int64_t keys);
  // Adds the next key of the sequence.
  void extend(Sequence& sequence, std::span<const int32_t> pages);
  // Keys that complete() and extend() looked at so far: the work on keys.
  int64_t walked() const { return walked_; }

 private:
  uint32_t changes(int32_t page) const {
    return owners_.changes(page * page_size_, (page + 1) * page_size_);
  }
  Sequence* find(std::span<const int32_t> pages, int64_t keys);

  const KvOwners& owners_;
  const int64_t page_size_;
  const bool windowed_;
  uint64_t step_ = 0;
  int64_t walked_ = 0;
  std::list<Sequence> sequences_;
};

}  // namespace braid
