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

}  // namespace
}  // namespace braid
