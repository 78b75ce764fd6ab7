#pragma once

#include <algorithm>
#include <cstdint>

#include "braid/base/math.h"

// How a collective is divided over lanes and rounds; pure, and equal on all ranks.
namespace braid::fabric {

// Ranges are cut at cache lines, slots are whole lines: a smaller range of the same lane takes no
// more rounds than a larger one.
inline constexpr int64_t kLineBytes = 64;

// Lanes that are worth their signals when the largest message between two ranks has `bytes`.
inline int lanes_for(int64_t bytes, int lanes) {
  constexpr int64_t kMinLaneBytes = 8 << 10;
  return static_cast<int>(std::clamp<int64_t>(bytes / kMinLaneBytes, 1, lanes));
}

// Part `index` of [0, bytes) in `parts`, in whole lines but for the last.
inline Range line_part(int64_t bytes, int64_t parts, int64_t index) {
  const Range lines = even_part(ceil_div(bytes, kLineBytes), parts, index);
  return {std::min(lines.begin * kLineBytes, bytes), std::min(lines.end * kLineBytes, bytes)};
}

// The part of `range` moved in round `round`, at most slot_bytes; empty past the end.
inline Range round_part(Range range, int64_t round, int64_t slot_bytes) {
  return {std::min(range.begin + round * slot_bytes, range.end),
          std::min(range.begin + (round + 1) * slot_bytes, range.end)};
}

}  // namespace braid::fabric
