#include "braid/fabric/nvshmem/heap_ranges.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::fabric {

int64_t HeapRanges::rounded(int64_t bytes) {
  return round_up(std::max<int64_t>(bytes, 1), kAlignment);
}

void HeapRanges::add_block(int64_t bytes) {
  BRAID_CHECK(bytes > 0 && bytes % kAlignment == 0, "a block of {} bytes", bytes);
  free_.push_back({{0, bytes}});
}

std::optional<HeapRanges::Place> HeapRanges::take(int64_t bytes) {
  bytes = rounded(bytes);
  for (size_t b = 0; b < free_.size(); ++b) {
    auto& ranges = free_[b];
    const auto range =
        std::ranges::find_if(ranges, [&](const auto& r) { return r.second >= bytes; });
    if (range == ranges.end()) continue;
    const auto [offset, room] = *range;
    ranges.erase(range);
    if (room > bytes) ranges.emplace(offset + bytes, room - bytes);
    return Place{static_cast<int>(b), offset};
  }
  return std::nullopt;
}

void HeapRanges::give(Place place, int64_t bytes) {
  bytes = rounded(bytes);
  auto& ranges = free_.at(static_cast<size_t>(place.block));
  auto after = ranges.lower_bound(place.offset);
  if (after != ranges.begin()) {
    const auto before = std::prev(after);
    BRAID_CHECK(before->first + before->second <= place.offset, "a range given back twice");
    if (before->first + before->second == place.offset) {
      place.offset = before->first;
      bytes += before->second;
      ranges.erase(before);
    }
  }
  if (after != ranges.end()) {
    BRAID_CHECK(place.offset + bytes <= after->first, "a range given back twice");
    if (place.offset + bytes == after->first) {
      bytes += after->second;
      ranges.erase(after);
    }
  }
  ranges.emplace(place.offset, bytes);
}

int64_t HeapRanges::free_bytes() const {
  int64_t sum = 0;
  for (const auto& ranges : free_) {
    for (const auto& [offset, bytes] : ranges) sum += bytes;
  }
  return sum;
}

}  // namespace braid::fabric
