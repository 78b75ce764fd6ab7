#pragma once

#include <vector>

#include "braid/fabric/fabric.h"

namespace braid::fabric {

// A part of a block, and the part's begin at either end, in bytes.
struct BlockChunk {
  int64_t dst_offset = 0;
  int64_t src_offset = 0;
  Block block;
};

// The block in parts of at most `most` bytes: as many whole rows as fit, or a row in pieces. The
// last two parts are even: with `most` of 1 KiB or more no part of a longer block has less than a
// quarter of `most`. A block without gaps is one row.
std::vector<BlockChunk> chunks_of(Block block, int64_t most);

}  // namespace braid::fabric
