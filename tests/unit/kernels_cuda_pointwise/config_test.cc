#include "braid/kernels/cuda/pointwise/config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

bool whole_warps(const RowsConfig& c) {
  if (c.lanes > 32) return c.lanes % 32 == 0 && c.rows_per_cta == 1;
  return (c.lanes & (c.lanes - 1)) == 0 && c.lanes * c.rows_per_cta % 32 == 0;
}

TEST(PointwiseConfig, EveryCandidateCoversItsRow) {
  for (int64_t cols = 1; cols < 40000; cols = cols * 5 / 4 + 1) {
    for (int vector : {1, 4, 8}) {
      if (cols % vector != 0) continue;
      for (int64_t rows : {1, 7, 32, 264, 265, 8192}) {
        const RowsDesc desc = {rows, cols, vector};
        const auto norms = norm_candidates(desc);
        ASSERT_FALSE(norms.empty());
        for (const RowsConfig& c : norms) {
          EXPECT_TRUE(whole_warps(c)) << to_string(c);
          EXPECT_LE(c.lanes * c.rows_per_cta, 1024);
          if (c.chunks) {
            EXPECT_GE(int64_t{c.lanes} * c.chunks * vector, cols);
          }
        }
        EXPECT_NE(std::find(norms.begin(), norms.end(), choose_norm(desc, 132)), norms.end());
        const auto maps = map_candidates(desc);
        for (const RowsConfig& c : maps) {
          EXPECT_TRUE(whole_warps(c)) << to_string(c);
          EXPECT_LE(c.lanes * c.rows_per_cta, 512);
          EXPECT_GE(c.chunks, 1);
        }
        EXPECT_NE(std::find(maps.begin(), maps.end(), choose_map(desc, 132)), maps.end())
            << to_string(choose_map(desc, 132)) << " for " << cols << " / " << vector;
      }
    }
  }
}

TEST(PointwiseConfig, FewRowsTakeMoreThreads) {
  EXPECT_EQ(to_string(choose_norm({1, 4096, 4}, 132)), "512 lanes x 1 rows, 2 chunks");
  EXPECT_EQ(to_string(choose_norm({8192, 4096, 4}, 132)), "256 lanes x 1 rows, 4 chunks");
  EXPECT_EQ(to_string(choose_norm({8192 * 32, 128, 4}, 132)), "8 lanes x 16 rows, 4 chunks");
  // A row that no CTA holds in registers, and one whose vectors are single elements.
  EXPECT_EQ(choose_norm({8192, 32768, 4}, 132).chunks, 0);
  EXPECT_EQ(choose_norm({1, 577, 1}, 132).chunks, 0);
}

TEST(PointwiseConfig, RopeHoldsEachHead) {
  for (int head_dim = 2; head_dim <= kMaxRopeHeadDim; head_dim += 2) {
    for (int rotary_dim : {0, 2, head_dim / 2 / 2 * 2, head_dim}) {
      for (bool aligned : {false, true}) {
        for (int64_t tokens : {1, 8192}) {
          for (int64_t heads : {1, 5, 48, 96, 300}) {
            const RopeConfig c = choose_rope({tokens, heads, head_dim, rotary_dim, aligned}, 132);
            EXPECT_GE(2 * c.vector * c.units * c.lanes, head_dim) << to_string(c);
            EXPECT_LE(c.lanes, 32);
            EXPECT_EQ(c.lanes * c.rows % 32, 0);
            EXPECT_LE(c.lanes * c.rows, 256);
            EXPECT_TRUE(c.heads_per_row == 1 || (c.heads_per_row == 4 && c.vector == 8));
            if (c.vector == 8) {
              EXPECT_TRUE(aligned && head_dim % 16 == 0 && rotary_dim % 16 == 0);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(to_string(choose_rope({1, 48, 128, 128, true}, 132)),
            "vector 8 x 1, 8 lanes x 16 rows x 1 heads");
  EXPECT_EQ(to_string(choose_rope({8192, 48, 128, 128, true}, 132)),
            "vector 8 x 1, 8 lanes x 12 rows x 4 heads");
  EXPECT_THROW(choose_rope({1, 48, 63, 0, true}, 132), Error);
  EXPECT_THROW(choose_rope({1, 48, kMaxRopeHeadDim + 2, 0, true}, 132), Error);
  EXPECT_THROW(choose_rope({1, 48, 64, 66, true}, 132), Error);
}

}  // namespace
}  // namespace braid::cuda
