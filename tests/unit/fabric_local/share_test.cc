#include "braid/fabric/collectives/share.h"

#include <gtest/gtest.h>

#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/collectives/move.h"

namespace braid::fabric {
namespace {

TEST(Share, LinePartsCoverTheRangeOnce) {
  for (int64_t bytes : {0, 1, 63, 64, 65, 1000, 4096}) {
    for (int64_t parts = 1; parts <= 9; ++parts) {
      int64_t at = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Range part = line_part(bytes, parts, i);
        EXPECT_EQ(part.begin, at);
        EXPECT_TRUE(part.begin % kLineBytes == 0 || part.empty());
        EXPECT_LE(part.size(), line_part(bytes, parts, 0).size());
        at = part.end;
      }
      EXPECT_EQ(at, bytes);
    }
  }
}

// Every rank must run as many rounds as the largest message takes.
TEST(Share, NoMessageTakesMoreRoundsThanTheLargest) {
  for (int64_t largest : {64, 100, 5000}) {
    for (int64_t bytes = 0; bytes <= largest; bytes += 7) {
      for (int lane = 0; lane < 3; ++lane) {
        EXPECT_LE(ceil_div(line_part(bytes, 3, lane).size(), kLineBytes),
                  ceil_div(line_part(largest, 3, lane).size(), kLineBytes));
      }
    }
  }
}

TEST(Share, RoundsCoverTheRangeOnce) {
  const Range range{128, 1000};
  int64_t at = range.begin;
  for (int64_t round = 0; round < ceil_div(range.size(), 192); ++round) {
    const Range part = round_part(range, round, 192);
    EXPECT_EQ(part.begin, at);
    EXPECT_LE(part.size(), 192);
    at = part.end;
  }
  EXPECT_EQ(at, range.end);
  EXPECT_TRUE(round_part(range, 5, 192).empty());
}

TEST(Share, SmallMessagesUseOneLane) {
  EXPECT_EQ(lanes_for(0, 8), 1);
  EXPECT_EQ(lanes_for(2304, 8), 1);
  EXPECT_EQ(lanes_for(1 << 20, 8), 8);
  EXPECT_EQ(lanes_for(1 << 20, 1), 1);
}

// Any range of a strided piece, put together from its runs, is that range row by row.
TEST(Piece, RunsCoverAnyRangeInOrder) {
  std::vector<std::byte> memory(7 * 11);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
  const Piece<const std::byte> piece{memory.data() + 2, 5, 7, 11};
  for (int64_t begin = 0; begin <= piece.bytes(); ++begin) {
    for (int64_t end = begin; end <= piece.bytes(); ++end) {
      int64_t at = begin;
      int runs = 0;
      for_each_run(piece, {begin, end},
                   [&](const std::byte* first, int64_t rows, int64_t row_bytes, int64_t before) {
                     EXPECT_EQ(before, at - begin);
                     for (int64_t i = 0; i < rows * row_bytes; ++i, ++at) {
                       const std::byte seen = first[i / row_bytes * 11 + i % row_bytes];
                       ASSERT_EQ(static_cast<int>(seen), 2 + at / 5 * 11 + at % 5);
                     }
                     ++runs;
                   });
      EXPECT_EQ(at, end);
      EXPECT_LE(runs, 3);
    }
  }
}

TEST(AllReduceChoice, SmallGoesOneShotLargeGoesTwoShot) {
  using enum AllReduceAlgorithm;
  constexpr int64_t kSlot = 128 << 10;
  EXPECT_EQ(choose_all_reduce(2, 2304, {}, kSlot), one_shot);
  EXPECT_EQ(choose_all_reduce(4, 2304, {}, kSlot), one_shot);
  EXPECT_EQ(choose_all_reduce(2, 64 << 20, {}, kSlot), two_shot);
  EXPECT_EQ(choose_all_reduce(8, 64 << 20, {}, kSlot), two_shot);
  // A link with more latency moves the border up, smaller slots move it down.
  EXPECT_EQ(choose_all_reduce(4, 64 << 10, {}, kSlot), two_shot);
  EXPECT_EQ(choose_all_reduce(4, 64 << 10, {12.5e9, 50e-6}, kSlot), one_shot);
  EXPECT_EQ(choose_all_reduce(4, 64 << 10, {12.5e9, 50e-6}, 4096), two_shot);
  // Once two-shot pays it pays for all larger sizes.
  for (int ranks = 2; ranks <= 8; ++ranks) {
    bool two = false;
    for (int64_t bytes = 4; bytes < 1 << 28; bytes *= 2) {
      const bool now = choose_all_reduce(ranks, bytes, {}, kSlot) == two_shot;
      EXPECT_TRUE(now || !two);
      two = now;
    }
    EXPECT_TRUE(two);
  }
}

}  // namespace
}  // namespace braid::fabric
