#include "braid/engine/context_fit.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(ContextFitTest, WhatAGpuHasLeftBoundsTheContext) {
  // Llama-3.1-8B in bf16: 16 GB of weights, 128 KiB a token, made for 131072 tokens.
  const auto tokens = [](int64_t gib) {
    return context_that_fits(
        {.free = gib * kGiB, .total = gib * kGiB, .weights = 15 * kGiB, .token = 131072}, 131072,
        64);
  };
  EXPECT_EQ(tokens(80), 131072);
  EXPECT_EQ(tokens(24), (24 - 15 - 3) * 8192 - 4096);  // all but an eighth and half a GiB
  EXPECT_EQ(tokens(16), 64) << "a page, whose allocation says what is lacking";
}

// A known step takes the place of the eighth: on a small GPU steps of 65,536 tokens take more, on a
// large one steps of 2,048 far less.
TEST(ContextFitTest, AStepsActivationsBoundTheContext) {
  const auto room = [](int64_t gib, int64_t step) {
    return ContextRoom{.free = gib * kGiB,
                       .total = gib * kGiB,
                       .weights = 15 * kGiB,
                       .token = 131072,
                       .step = step};
  };
  EXPECT_EQ(context_that_fits(room(24, 4 * kGiB), 131072, 64), (24 - 15 - 5) * 8192 - 4096);
  EXPECT_EQ(context_that_fits(room(80, 1 * kGiB), 1 << 20, 64), (80 - 15 - 2) * 8192 - 4096);
  // Bytes for a step and tokens for their keys say the same.
  for (int64_t gib : {24, 80}) {
    const int64_t tokens = context_that_fits(room(gib, kGiB), 1 << 20, 64);
    EXPECT_EQ(step_room(room(gib, kGiB), tokens), kGiB);
  }
  EXPECT_LT(step_room(room(16, kGiB), 65536), 0);
}

ContextRoom divided_room(int64_t gib, int64_t step, int ranks = 1) {
  return {.free = gib * kGiB,
          .total = gib * kGiB,
          .weights = ranks * 15 * kGiB,
          .token = ranks * int64_t{131072},
          .step = ranks * step,
          .ranks = ranks};
}

// Of an 8B model.
DividedKeys keys(int64_t slots, int64_t ranks) {
  return {.slots = slots, .layer_bytes = 4096, .ranks = static_cast<int>(ranks)};
}

// A server's pool of pages takes all memory but a prompt's step. So a way to compute a prompt may
// take about the bytes of one such step, whether ranks have a GPU each or share a GPU. Beside the
// keys of a single sequence a way may take far more.
TEST(ContextFitTest, APoolLeavesTheStepThatItKeptFree) {
  constexpr int64_t kPage = 64;
  for (int sharing : {1, 2, 4}) {
    for (int64_t step : {kGiB / 7, kGiB, 3 * kGiB}) {
      for (int64_t ranks : {2, 3, 4}) {
        const ContextRoom gpu = divided_room(80 * sharing, step, sharing);
        const int64_t each = context_that_fits(gpu, int64_t{1} << 30, kPage);
        const std::vector<ContextRoom> gpus(static_cast<size_t>(ranks), gpu);
        const DividedCache pool = divided_cache(gpus, keys(ranks * each, ranks), kPage);
        EXPECT_TRUE(pool.apart);
        EXPECT_GE(kArenasPerPlan * pool.step_bytes, step - kArenasPerPlan);
        EXPECT_LE(kArenasPerPlan * pool.step_bytes, step + kPage * 131072);
        const DividedCache one = divided_cache(gpus, keys(65536, ranks), kPage);
        EXPECT_FALSE(one.apart);
        EXPECT_GT(one.step_bytes, 4 * pool.step_bytes);
        // A pool that a user names may leave nothing: some way stays (PromptChoice).
        EXPECT_EQ(divided_cache(gpus, keys(2 * ranks * each, ranks), kPage).step_bytes, 1);
      }
    }
  }
}

// The fullest GPU counts. Short caches are together where each GPU has room for all keys.
TEST(ContextFitTest, ADividedCacheIsTogetherOrApart) {
  const auto cache = [](int64_t gib, int64_t other_gib, int64_t slots) {
    const std::vector<ContextRoom> gpus{divided_room(gib, kGiB), divided_room(other_gib, kGiB)};
    return divided_cache(gpus, keys(slots, 2), 64);
  };
  EXPECT_FALSE(cache(80, 80, 131072).apart);
  EXPECT_TRUE(cache(80, 80, 131072 + 64).apart);
  EXPECT_FALSE(cache(24, 24, 40000).apart);
  EXPECT_TRUE(cache(24, 24, 70000).apart) << "53,248 tokens fit a GPU";
  EXPECT_TRUE(cache(80, 24, 70000).apart);
  EXPECT_EQ(cache(80, 24, 70000).step_bytes, cache(24, 24, 70000).step_bytes);
  EXPECT_LT(cache(24, 24, 70000).step_bytes, cache(80, 80, 70000).step_bytes);
  EXPECT_EQ(cache(16, 16, 128).step_bytes, 1) << "weights and CUDA leave less than nothing";
  // 131,137 tokens are 2,050 pages, of which each rank has 1,025.
  const int64_t more = cache(80, 80, 64 * 2050).step_bytes;
  EXPECT_EQ(cache(80, 80, 64 * 2049 + 1).step_bytes, more);
  EXPECT_LT(cache(80, 80, 64 * 2051).step_bytes, more);
}

}  // namespace
}  // namespace braid
