#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace braid::fabric {

// A heap's free ranges of blocks, as pure data. A place follows from the set of free ranges alone,
// so processes with equal requests in equal order get equal places.
class HeapRanges {
 public:
  static constexpr int64_t kAlignment = 512;

  struct Place {
    int block = 0;
    int64_t offset = 0;
    bool operator==(const Place&) const = default;
  };

  // A new block, wholly free. `bytes` is a multiple of kAlignment.
  void add_block(int64_t bytes);
  int blocks() const { return static_cast<int>(free_.size()); }
  // The first place with room for `bytes`, rounded up to kAlignment; nothing without such room.
  std::optional<Place> take(int64_t bytes);
  // Frees the place of a take() with as many bytes.
  void give(Place place, int64_t bytes);
  int64_t free_bytes() const;

  static int64_t rounded(int64_t bytes);

 private:
  std::vector<std::map<int64_t, int64_t>> free_;  // [blocks] of offset -> bytes, not adjacent
};

}  // namespace braid::fabric
