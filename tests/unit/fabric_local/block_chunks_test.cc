// Chunks of a block cover it once, in parts that fit.
#include "braid/fabric/block_chunks.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace braid::fabric {
namespace {

TEST(BlockChunks, CoverEveryByteOnceWithinTheLimit) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int turn = 0; turn < 400; ++turn) {
    Block block{.row_bytes = draw(0, 40), .rows = draw(1, 12)};
    block.dst_stride = block.row_bytes + (turn % 3 == 0 ? 0 : draw(0, 9));
    block.src_stride = block.row_bytes + (turn % 3 == 0 ? 0 : draw(0, 9));
    const int64_t most = draw(1, 100);
    // Which byte of the source each of the destination gets, and what it should.
    std::vector<int64_t> got(1000, -1), want(1000, -1);
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t i = 0; i < block.row_bytes; ++i) {
        want[static_cast<size_t>(r * block.dst_stride + i)] = r * block.src_stride + i;
      }
    }
    for (const BlockChunk& chunk : chunks_of(block, most)) {
      EXPECT_GT(chunk.block.bytes(), 0);
      EXPECT_LE(chunk.block.bytes(), most);
      for (int64_t r = 0; r < chunk.block.rows; ++r) {
        for (int64_t i = 0; i < chunk.block.row_bytes; ++i) {
          auto& at = got[static_cast<size_t>(chunk.dst_offset + r * chunk.block.dst_stride + i)];
          EXPECT_EQ(at, -1) << "twice";
          at = chunk.src_offset + r * chunk.block.src_stride + i;
        }
      }
    }
    EXPECT_EQ(got, want);
  }
}

// A short packed copy into a GPU may wait for computation there (docs/log/gpu-notes.md), so none is
// left over.
TEST(BlockChunks, NoChunkIsAShortRemainder) {
  for (const int64_t most : {256 << 10, 1 << 20}) {
    for (const int64_t row : {64, 3072, 5000, 65536, 200000}) {
      for (int64_t rows = 1; rows < 1500; rows += rows < 400 ? 1 : 13) {
        for (const int64_t gap : {0, 3072}) {
          const Block block{
              .row_bytes = row, .rows = rows, .dst_stride = row, .src_stride = row + gap};
          int64_t least = block.bytes();
          for (const BlockChunk& chunk : chunks_of(block, most)) {
            EXPECT_LE(chunk.block.bytes(), most);
            least = std::min(least, chunk.block.bytes());
          }
          EXPECT_GE(least, std::min(block.bytes(), most / 4))
              << rows << " rows of " << row << " bytes, gap " << gap << ", at most " << most;
        }
      }
    }
  }
}

TEST(BlockChunks, WithoutALimitABlockStaysWhole) {
  constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();
  const auto strided =
      chunks_of({.row_bytes = 8, .rows = 3, .dst_stride = 9, .src_stride = 8}, kWhole);
  ASSERT_EQ(strided.size(), 1u);
  EXPECT_EQ(strided[0].block.rows, 3);
  const auto packed =
      chunks_of({.row_bytes = 8, .rows = 3, .dst_stride = 8, .src_stride = 8}, kWhole);
  ASSERT_EQ(packed.size(), 1u);
  EXPECT_EQ(packed[0].block.row_bytes, 24);
  EXPECT_TRUE(chunks_of({.row_bytes = 0, .rows = 3}, kWhole).empty());
}

}  // namespace
}  // namespace braid::fabric
