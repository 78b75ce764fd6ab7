#pragma once

#include <algorithm>
#include <cstdint>

#include "braid/backend/cpu/team.h"

namespace braid::cpu {

// Columns are split over a team in whole tiles, multiples of every quantization block, every vector
// and the cache line: no two threads write the same line of an aligned row.
constexpr int64_t kTileCols = 256;

// Calls f(row, column range) for this thread's share of a [rows, cols] matrix, in order; a row's
// ranges are merged.
template <class F>
void for_each_tile(int64_t rows, int64_t cols, const Team& team, F&& f) {
  const int64_t tiles = ceil_div(cols, kTileCols);
  Range share = team.share(rows * tiles);
  while (!share.empty()) {
    const int64_t row = share.begin / tiles;
    const int64_t first = share.begin % tiles;
    const int64_t last = std::min(tiles, first + share.size());
    f(row, Range{first * kTileCols, std::min(cols, last * kTileCols)});
    share.begin += last - first;
  }
}

}  // namespace braid::cpu
