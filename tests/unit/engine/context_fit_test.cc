#include "braid/engine/context_fit.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace braid
