#pragma once

#include <cstdint>

#include "braid/kernels/cuda/comm/device/comm_view.h"

// Arguments of collective kernels, passed by value.
namespace braid::cuda {

// y = sum over ranks of x (all_reduce), or of this rank's rows of x (reduce_scatter). A value is
// [rows, cols] elements; without a null `live`, live rows (<= rows) come from device memory.
struct ReduceParams {
  const std::byte* own_x;  // T [rows, cols]
  std::byte* own_y;        // T [rows, cols], or [rows of the rank, cols]
  int64_t rows;
  int64_t cols;
  const int64_t* live;                // device, [1], or null
  bool scatter;                       // reduce_scatter
  const std::byte* x[kMaxCommRanks];  // at each rank, where direct
  std::byte* y[kMaxCommRanks];        // likewise
};

// Moves of pieces: piece (p, q) goes from rank p to rank q.
struct MoveParams {
  const std::byte* x;  // own
  std::byte* own_y;
  int64_t rows;  // of the whole value
  int64_t row_bytes;
  const int64_t* live;          // device, [1], or null
  bool to_all;                  // all_to_all; else all_gather
  std::byte* y[kMaxCommRanks];  // at each rank, where direct
};

// Piece (from, to): bytes at `src` in from's x and at `dst` in to's y.
struct Piece {
  int64_t src = 0;
  int64_t dst = 0;
  int64_t bytes = 0;
};
// even_part without a 64-bit division, which costs a kernel 0.1 us.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};
constexpr RowRange even_rows(int64_t rows, int ranks, int rank) {
  const uint32_t n = static_cast<uint32_t>(rows);
  const uint32_t base = n / static_cast<uint32_t>(ranks);
  const uint32_t extra = n - base * static_cast<uint32_t>(ranks);
  const uint32_t r = static_cast<uint32_t>(rank);
  const uint32_t begin = r * base + (r < extra ? r : extra);
  return {begin, begin + base + (r < extra ? 1u : 0u)};
}
constexpr Piece piece_of(bool to_all, int64_t rows, int64_t row_bytes, int ranks, int from,
                         int to) {
  if (to_all) {
    const int64_t bytes = even_rows(rows, ranks, 0).end * row_bytes;
    return {to * bytes, from * bytes, bytes};
  }
  const RowRange part = even_rows(rows, ranks, from);
  return {0, part.begin * row_bytes, (part.end - part.begin) * row_bytes};
}

}  // namespace braid::cuda
