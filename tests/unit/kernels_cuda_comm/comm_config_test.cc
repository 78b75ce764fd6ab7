#include "braid/kernels/cuda/comm/comm_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

using testing::HasSubstr;

CollectiveDesc all_reduce_of(int64_t bytes, int ranks = 2) {
  return {.dtype = DType::bf16, .ranks = ranks, .rows = 1, .cols = bytes / 2};
}

TEST(CommConfig, ChoosesLinesForSmallAndDirectForLarge) {
  for (int ranks : {2, 4, 8}) {
    EXPECT_EQ(choose(all_reduce_of(8 << 10, ranks), {}).algorithm, CommAlgorithm::line);
    EXPECT_EQ(choose(all_reduce_of(256 << 10 >> ranks / 2, ranks), {}).algorithm,
              CommAlgorithm::line);
    for (int64_t bytes = 8 << 20; bytes <= 256 << 20; bytes *= 2) {
      EXPECT_EQ(choose(all_reduce_of(bytes, ranks), {}).algorithm, CommAlgorithm::direct);
    }
  }
}

TEST(CommConfig, TheChoiceIsACandidateThatCanMoveIt) {
  for (CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::reduce_scatter,
                          CollectiveOp::all_gather, CollectiveOp::all_to_all}) {
    for (int ranks : {1, 2, 3, 8}) {
      for (int64_t cols : {1, 1000, 1 << 20}) {
        const CollectiveDesc desc{.op = op, .ranks = ranks, .rows = 4 * ranks, .cols = cols};
        const CollectiveConfig config = choose(desc, {});
        EXPECT_NO_THROW(verify(desc, config, {})) << to_string(desc) << to_string(config);
        for (const CollectiveConfig& c : candidates(desc, {})) EXPECT_GE(c.cost_us, config.cost_us);
      }
    }
  }
}

TEST(CommConfig, LargeMovesOfFixedSizeMayGoByCopyEngine) {
  CollectiveDesc desc{.op = CollectiveOp::all_gather, .ranks = 2, .rows = 2, .cols = 64 << 20};
  EXPECT_EQ(choose(desc, {}).algorithm, CommAlgorithm::direct);  // also copies the own part
  desc.own_in_place = true;
  EXPECT_EQ(choose(desc, {}).algorithm, CommAlgorithm::copy_engine);
  desc.live_rows = true;
  EXPECT_EQ(choose(desc, {}).algorithm, CommAlgorithm::direct);
}

TEST(CommConfig, MemoryThatPeersCannotReachGoesByLinesUpToTheStaging) {
  CollectiveDesc desc = all_reduce_of(1 << 20);
  desc.x_symmetric = false;
  EXPECT_EQ(choose(desc, {}).algorithm, CommAlgorithm::line);
  desc.cols += 1;
  try {
    choose(desc, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("1048578 bytes"));
    EXPECT_THAT(error.what(), HasSubstr("1048576"));
  }
}

TEST(CommConfig, BetweenMachinesEverythingIsStaged) {
  const CommLimits limits{.across_machines = true};
  CollectiveDesc desc = all_reduce_of(8 << 10);
  EXPECT_EQ(candidates(desc, limits).size(), 1u);
  EXPECT_EQ(choose(desc, limits).algorithm, CommAlgorithm::staged);
  EXPECT_THROW(verify(desc, {.algorithm = CommAlgorithm::line}, limits), Error);
  EXPECT_THROW(verify(desc, {.algorithm = CommAlgorithm::staged}, {}), Error);
  EXPECT_EQ(volume(desc, CommAlgorithm::staged, 0, 1), (CommVolume{8 << 10, 0}));
  // Live rows are not known where the transfer is made: it is as large as any rank's part.
  desc = {.op = CollectiveOp::reduce_scatter, .ranks = 2, .rows = 5, .cols = 8};
  EXPECT_EQ(volume(desc, CommAlgorithm::staged, 0, 1), (CommVolume{2 * 16, 0}));
  desc.live_rows = true;
  EXPECT_EQ(volume(desc, CommAlgorithm::staged, 0, 1), (CommVolume{3 * 16, 0}));
}

TEST(CommConfig, WhatGoesAtOnceIsOfWhole16Bytes) {
  EXPECT_EQ(lines_at_once(all_reduce_of(128 * 8), {.ctas = 2, .threads = 64}), 0);
  const CollectiveConfig tagged{.ctas = 2, .threads = 64, .line_data = 12};
  EXPECT_EQ(lines_at_once(all_reduce_of(96 * 16), tagged), 1);
  EXPECT_EQ(lines_at_once(all_reduce_of(97 * 16), tagged), 2);
  EXPECT_EQ(lines_at_once(all_reduce_of(96 * 16, 3), tagged), 4);
  EXPECT_EQ(lines_at_once(all_reduce_of(128 * 48), tagged), 4);
  EXPECT_EQ(lines_at_once(all_reduce_of(128 * 48 + 16), tagged), 0);
  EXPECT_EQ(lines_at_once(all_reduce_of(128 * 48 - 2), tagged), 0);
  EXPECT_EQ(lines_at_once(all_reduce_of(0), tagged), 0);
  const CollectiveConfig bare{.ctas = 2, .threads = 64, .line_data = 16};
  EXPECT_EQ(lines_at_once(all_reduce_of(128 * 16), bare), 1);
  EXPECT_EQ(lines_at_once(all_reduce_of(128 * 32), bare), 2);
  EXPECT_EQ(lines_at_once(all_reduce_of(128 * 16, 3), bare), 4);
  EXPECT_NO_THROW(verify(all_reduce_of(128 * 64), bare, {}));
  EXPECT_THROW(verify(all_reduce_of(128 * 64 + 16), bare, {}), Error);
  EXPECT_THROW(verify(all_reduce_of(62), bare, {}), Error);
  // Live rows end anywhere: each is whole.
  CollectiveDesc desc{.ranks = 2, .rows = 2, .cols = 4};
  EXPECT_EQ(lines_at_once(desc, tagged), 1);
  desc.live_rows = true;
  EXPECT_EQ(lines_at_once(desc, tagged), 0);
  desc.cols = 8;
  EXPECT_EQ(lines_at_once(desc, tagged), 1);
  desc.op = CollectiveOp::reduce_scatter;
  EXPECT_EQ(lines_at_once(desc, tagged), 0);
}

TEST(CommConfig, RefusesWhatNothingMoves) {
  EXPECT_THROW(choose({.ranks = 9, .rows = 1, .cols = 1}, {}), Error);
  EXPECT_THROW(choose({.dtype = DType::i32, .ranks = 2, .rows = 1, .cols = 1}, {}), Error);
  EXPECT_THROW(choose({.dtype = DType::q8_0, .ranks = 2, .rows = 1, .cols = 32}, {}), Error);
  EXPECT_THROW(choose({.op = CollectiveOp::all_to_all, .ranks = 2, .rows = 3, .cols = 1}, {}),
               Error);
  EXPECT_THROW(choose({.ranks = 2, .rows = int64_t{1} << 40, .cols = int64_t{1} << 40}, {}), Error);
  EXPECT_THROW(verify(all_reduce_of(64), {.ctas = 129}, {}), Error);
  // As many threads as fit beside others; small CTAs share SMs where all goes at once.
  EXPECT_NO_THROW(verify(all_reduce_of(64), {.ctas = 128, .threads = 256, .line_data = 12}, {}));
  EXPECT_THROW(verify(all_reduce_of(64), {.ctas = 65, .threads = 512, .line_data = 12}, {}), Error);
  EXPECT_THROW(verify(all_reduce_of(1 << 20), {.ctas = 65, .threads = 64, .line_data = 12}, {}),
               Error);
  EXPECT_THROW(verify(all_reduce_of(64), {.line_data = 0}, {}), Error);
  EXPECT_THROW(verify(all_reduce_of(64), {.threads = 33}, {}), Error);
  EXPECT_THROW(verify(all_reduce_of(64), {.algorithm = CommAlgorithm::copy_engine}, {}), Error);
}

TEST(CommConfig, PartsCoverAllElementsOnce) {
  for (int64_t n : {0, 1, 7, 8, 9, 1000, 4099}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      int64_t at = 0;
      for (int r = 0; r < ranks; ++r) {
        const Range part = direct_part(n, 8, ranks, r);
        EXPECT_EQ(part.begin, at);
        EXPECT_TRUE(part.begin % 8 == 0 || part.begin == n);
        at = part.end;
      }
      EXPECT_EQ(at, n);
    }
  }
}

TEST(CommConfig, VolumesAreThoseOfTheAlgorithms) {
  const CollectiveDesc desc{.dtype = DType::bf16, .ranks = 4, .rows = 8, .cols = 64};
  const int64_t n = 8 * 64 * 2;
  EXPECT_EQ(volume(desc, CommAlgorithm::line, 0, 1), (CommVolume{n, 0}));
  EXPECT_EQ(volume(desc, CommAlgorithm::direct, 0, 1), (CommVolume{n / 4, n / 4}));
  EXPECT_EQ(volume(desc, CommAlgorithm::direct, 2, 2), (CommVolume{}));
}

TEST(CommConfig, ReduceNormCoversItsColumns) {
  const CommLimits limits;
  for (int64_t rows : {1, 2, 8, 32, 1000}) {
    for (int64_t cols = 8; cols <= 16384; cols = cols < 4096 ? cols + 136 : cols * 2) {
      for (const ReduceNormConfig& c :
           {choose_reduce_norm(rows, cols, limits), choose_scatter_norm(rows, cols, 2, limits)}) {
        EXPECT_GE(int64_t{8} * c.threads * c.units, cols) << to_string(c);
        EXPECT_LE(c.threads, kMaxCommThreads);
        EXPECT_LE(c.spread * c.row_groups, limits.max_ctas);
      }
    }
  }
  EXPECT_GT(choose_reduce_norm(1, 8192, {}).spread, 1);
  EXPECT_EQ(choose_scatter_norm(1, 8192, 2, {}).spread, 1);
  EXPECT_THROW(choose_reduce_norm(1, 4100, {}), Error);
  EXPECT_THROW(choose_scatter_norm(1, 16392, 2, {}), Error);
}

TEST(CommConfig, Prints) {
  EXPECT_EQ(to_string(all_reduce_of(128)), "all_reduce bf16 [1, 64] P2");
  EXPECT_EQ(to_string(CollectiveConfig{.ctas = 4, .threads = 256}), "line8 4x256");
  EXPECT_EQ(to_string(ReduceNormConfig{.spread = 4, .threads = 128, .row_groups = 8}),
            "8 rows x 4 CTAs x 128 threads x 1");
}

}  // namespace
}  // namespace braid::cuda
