// Steps and prompts as long as memory allows.
#include "braid/engine/step_fit.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(StepFit, TakesTheLargestStepThatFits) {
  const auto bytes = [](int64_t tokens) { return 100.0 * static_cast<double>(tokens) + 5; };
  EXPECT_EQ(rank_tokens_that_fit(1e9, bytes), kRankTokens);
  EXPECT_EQ(rank_tokens_that_fit(100 * 65536 + 5, bytes), 65536);
  EXPECT_EQ(rank_tokens_that_fit(100 * 65536 + 4, bytes), 32768);
  EXPECT_EQ(rank_tokens_that_fit(100 * 2048 + 5, bytes), kLeastRankTokens);
  EXPECT_FALSE(rank_tokens_that_fit(100 * 2048 + 4, bytes).has_value());
  // Over three ranks, whose step has no more tokens than the context.
  const auto all = [&](int64_t tokens) { return bytes(tokens / 3); };
  EXPECT_EQ(divided_step(1 << 20, 3, 100 * 32768 + 5, all), 3 * 32768);
  EXPECT_EQ(divided_step(100000, 3, 1e9, all), 100000);
  EXPECT_EQ(divided_step(1 << 20, 3, 0, all), 3 * kLeastRankTokens);
}

TEST(StepFit, FindsTheLongestPrompt) {
  for (int64_t limit : {0, 63, 64, 65, 1000, 4095, 4096, 9999}) {
    const auto bytes = [](int64_t tokens) { return static_cast<double>(tokens); };
    EXPECT_EQ(longest_that_fits(static_cast<double>(limit), 10000, 64, bytes), limit / 64 * 64)
        << limit;
  }
}

}  // namespace
}  // namespace braid
