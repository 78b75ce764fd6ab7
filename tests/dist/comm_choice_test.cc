// How fused communication is cut: pure functions, so ranks that agree on sizes agree on the cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/kernels/cpu/comm/linear_all_reduce.h"
#include "braid/kernels/cpu/comm/pieces.h"
#include "braid/kernels/cpu/comm/reduce_norm.h"

namespace braid::cpu {
namespace {

using fabric::AllReduceAlgorithm;

constexpr Link kMemory{}, kSlow{1e9, 10e-6};

TEST(LinearAllReduceChoice, FitsTheSlotsWhateverTheSizes) {
  for (int64_t M : {1, 2, 8, 9, 31, 512, 4096}) {
    for (int64_t N : {1, 63, 576, 4096}) {
      for (int P : {1, 2, 3, 8}) {
        for (int64_t slot : {64, 4096, 128 << 10}) {
          for (int lanes : {1, 3, 16}) {
            for (Link link : {kMemory, kSlow}) {
              const auto c = choose_linear_all_reduce({M, N, P, link, slot, lanes});
              SCOPED_TRACE(testing::Message() << M << " x " << N << " over " << P << ", slots "
                                              << slot << ": " << to_string(c));
              ASSERT_TRUE(1 <= c.tile_rows && c.tile_rows <= M && 1 <= c.tile_cols &&
                          c.tile_cols <= N && 1 <= c.lanes && c.lanes <= lanes);
              const int64_t lines = ceil_div(c.tile_rows * c.tile_cols, 16);
              const int64_t share =
                  c.algorithm == AllReduceAlgorithm::one_shot ? lines : ceil_div(lines, P);
              ASSERT_LE(ceil_div(share, c.lanes) * 64, slot);
            }
          }
        }
      }
    }
  }
}

TEST(LinearAllReduceChoice, CutsWhatThereIsToHide) {
  constexpr int64_t kSlot = 4 << 20;
  // A put to memory is a copy by the caller: nothing runs beside it.
  EXPECT_EQ(to_string(choose_linear_all_reduce({512, 2048, 4, kMemory, kSlot, 1})),
            "two_shot, tiles of 512 x 2048, 1 lane");
  EXPECT_EQ(to_string(choose_linear_all_reduce({512, 2048, 4, kSlow, kSlot, 1})),
            "two_shot, tiles of 64 x 1024, 1 lane");
  // One token: output columns.
  const auto one = choose_linear_all_reduce({1, 8192, 2, {1e7, 10e-6}, kSlot, 1});
  EXPECT_EQ(one.tile_rows, 1);
  EXPECT_LT(one.tile_cols, 8192);
  EXPECT_EQ(one.algorithm, AllReduceAlgorithm::one_shot) << "one latency, the same volume";
}

TEST(PiecesChoice, GrowsWithWhatIsHidden) {
  EXPECT_EQ(choose_pieces(1e9, kMemory), 1);
  EXPECT_EQ(choose_pieces(0, kSlow), 1);
  int64_t last = 1;
  for (double bytes = 1e3; bytes < 1e10; bytes *= 4) {
    const int64_t pieces = choose_pieces(bytes, kSlow);
    EXPECT_GE(pieces, last);
    last = pieces;
  }
  EXPECT_GT(last, 8);
  EXPECT_LE(last, 64);
}

TEST(ReduceNormChoice, RoundsAreWholeRowsThatFit) {
  for (int64_t rows : {0, 1, 3, 64, 1000}) {
    for (int64_t cols : {1, 16, 1000}) {
      for (int P : {1, 2, 3, 8}) {
        for (int64_t slot : {4032, 128 << 10}) {
          for (int lanes : {1, 4}) {
            for (bool divided : {false, true}) {
              for (Link link : {kMemory, kSlow}) {
                const auto c = choose_reduce_norm({rows, cols, P, link, slot, lanes, divided});
                SCOPED_TRACE(to_string(c));
                ASSERT_GE(c.round_rows, 1);
                ASSERT_LE(c.round_rows * cols * 4, slot);
                ASSERT_TRUE(1 <= c.lanes && c.lanes <= lanes);
                ASSERT_LE(c.lanes, std::max<int64_t>(rows, 1));
                ASSERT_TRUE(!divided || c.algorithm == AllReduceAlgorithm::two_shot);
              }
            }
          }
        }
      }
    }
  }
}

TEST(ReduceNormChoice, RefusesARowThatNoSlotHolds) {
  try {
    choose_reduce_norm({.rows = 4, .cols = 1025, .ranks = 2, .slot_bytes = 4096});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), testing::HasSubstr("a row of 1025 floats"));
    EXPECT_THAT(e.what(), testing::HasSubstr("slots of 4096 bytes"));
  }
}

}  // namespace
}  // namespace braid::cpu
