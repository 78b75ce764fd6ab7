#include "braid/fabric/block_chunks.h"

#include <algorithm>

namespace braid::fabric {

std::vector<BlockChunk> chunks_of(Block block, int64_t most) {
  if (block.packed()) block = {.row_bytes = block.bytes()};
  const int64_t some = std::max<int64_t>(1, most / std::max<int64_t>(block.row_bytes, 1));
  std::vector<BlockChunk> chunks;
  for (int64_t r = 0; r < block.rows; r += some) {
    for (int64_t at = 0; at < block.row_bytes; at += most) {  // once, unless a row is long
      chunks.push_back({r * block.dst_stride + at,
                        r * block.src_stride + at,
                        {.row_bytes = std::min(most, block.row_bytes - at),
                         .rows = std::min(some, block.rows - r),
                         .dst_stride = block.dst_stride,
                         .src_stride = block.src_stride}});
    }
  }
  return chunks;
}

}  // namespace braid::fabric
