#include "braid/fabric/block_chunks.h"

#include <algorithm>

#include "braid/base/math.h"

namespace braid::fabric {
namespace {

// The next of several parts of at most `most`, with `left` still to cut: the last two are even, up
// to a multiple of `unit`.
int64_t next_part(int64_t left, int64_t most, int64_t unit) {
  if (left <= most) return left;
  return left - most < most ? std::min(most, round_up(ceil_div(left, int64_t{2}), unit)) : most;
}

}  // namespace

std::vector<BlockChunk> chunks_of(Block block, int64_t most) {
  if (block.packed()) block = {.row_bytes = block.bytes()};
  constexpr int64_t kLine = 128;  // pieces of a row begin at multiples of so many bytes
  const int64_t some = std::max<int64_t>(1, most / std::max<int64_t>(block.row_bytes, 1));
  std::vector<BlockChunk> chunks;
  for (int64_t r = 0; r < block.rows;) {
    const int64_t rows = next_part(block.rows - r, some, 1);
    for (int64_t at = 0; at < block.row_bytes;) {  // once, unless a row is long
      const int64_t bytes = next_part(block.row_bytes - at, most, kLine);
      chunks.push_back({r * block.dst_stride + at,
                        r * block.src_stride + at,
                        {.row_bytes = bytes,
                         .rows = rows,
                         .dst_stride = block.dst_stride,
                         .src_stride = block.src_stride}});
      at += bytes;
    }
    r += rows;
  }
  return chunks;
}

}  // namespace braid::fabric
