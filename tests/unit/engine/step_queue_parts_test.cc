// The parts of a queue of steps that need no device: places, the window, sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "braid/engine/requests/slot_table.h"
#include "braid/engine/requests/step_sizes.h"
#include "braid/engine/requests/step_window.h"

namespace braid {
namespace {

TEST(SlotTable, TakesTheLowestFreePlaceAndNoneTwice) {
  std::mt19937 random(3);
  SlotTable table(9);
  std::set<int32_t> taken;
  for (int i = 0; i < 2000; ++i) {
    if (random() % 2 == 0) {
      const int32_t slot = table.take();
      if (taken.size() == 9) {
        EXPECT_EQ(slot, -1);
        continue;
      }
      for (int32_t lower = 0; lower < slot; ++lower) EXPECT_TRUE(taken.contains(lower));
      EXPECT_TRUE(taken.insert(slot).second);
    } else if (!taken.empty()) {
      const auto it = std::next(taken.begin(), static_cast<ptrdiff_t>(random() % taken.size()));
      table.give_back(*it);
      taken.erase(it);
    }
    EXPECT_EQ(table.taken(), std::ssize(taken));
  }
  while (table.take() >= 0) {
  }
  table.give_back(4);
  EXPECT_THROW(table.give_back(4), std::logic_error);
  EXPECT_THROW(table.give_back(-1), std::logic_error);
  EXPECT_THROW(table.give_back(9), std::logic_error);
}

StepUnderWay step_of(int64_t tokens, bool for_host = false) {
  StepUnderWay step;
  step.step.tokens = tokens;
  step.for_host = for_host;
  return step;
}

TEST(StepWindow, HoldsAsManyStepsAsItsDepthInOrder) {
  StepWindow window(2);
  EXPECT_TRUE(window.empty());
  window.put(step_of(1));
  EXPECT_FALSE(window.full());
  window.put(step_of(2));
  EXPECT_TRUE(window.full());
  EXPECT_THROW(window.put(step_of(3)), std::logic_error);
  EXPECT_EQ(window.take().step.tokens, 1);
  EXPECT_FALSE(window.full());
  EXPECT_EQ(window.take().step.tokens, 2);
  EXPECT_TRUE(window.empty());
}

TEST(StepWindow, NothingGoesBehindAStepWhoseLogitsTheHostReads) {
  StepWindow window(3);
  window.put(step_of(1, true));
  EXPECT_TRUE(window.full());
  EXPECT_THROW(window.put(step_of(2)), std::logic_error);
}

TEST(StepWindow, PausesWhereThatMakesMoreTokens) {
  const auto pauses = [](int64_t sampled, int64_t masked, double ms) {
    StepUnderWay step = step_of(sampled);
    step.sampled = sampled;
    step.masked = masked;
    return worth_a_pause(step, ms / 1e3);
  };
  // As many tokens in many steps: `masked` rows in every second one, or a pause before each.
  for (const double ms : {0.2, 1.0, 5.8, 20.0}) {
    for (int64_t sampled = 1; sampled <= 64; ++sampled) {
      EXPECT_FALSE(pauses(sampled, 0, ms));
      for (int64_t masked = 1; masked <= sampled; ++masked) {
        double sitting = 0, pausing = 0;  // tokens in ten seconds
        int64_t step = 0;
        for (double at = 0; at < 10; at += ms / 1e3)
          sitting += static_cast<double>(sampled - (step++ % 2 == 0 ? 0 : masked));
        for (double at = 0; at < 10; at += ms / 1e3 + kPauseSeconds)
          pausing += static_cast<double>(sampled);
        if (std::abs(pausing / sitting - 1) < 2e-3) continue;  // either is right
        EXPECT_EQ(pauses(sampled, masked, ms), pausing > sitting)
            << masked << " of " << sampled << ", steps of " << ms << " ms";
      }
    }
  }
  // Of 32 rows: steps of 5.8 ms (an H100, Llama-3-8B's shape) pause for three masks, not for one.
  EXPECT_TRUE(pauses(32, 8, 5.8));
  EXPECT_TRUE(pauses(32, 3, 5.8));
  EXPECT_FALSE(pauses(32, 1, 5.8));
  EXPECT_TRUE(pauses(32, 1, 16));
  EXPECT_FALSE(pauses(32, 32, 0)) << "no step has ended yet";
}

TEST(StepSizes, HoldEveryStepAndRoundUpLittle) {
  for (const StepLimits limits :
       {StepLimits{.sequences = 32, .tokens = 512, .rows = 96},
        StepLimits{.sequences = 1, .tokens = 65, .rows = 65},
        StepLimits{.sequences = 200, .tokens = 8192, .rows = 264},
        StepLimits{.sequences = 33, .tokens = 777, .rows = 97, .ranks = 4}}) {
    const std::vector<StepSize> sizes = step_sizes(limits);
    EXPECT_LE(sizes.size(), 60u);
    // The first two hold every step, and nobody else is larger.
    EXPECT_TRUE(sizes[0].holds(limits.tokens, limits.sequences, limits.rows) && !sizes[0].decode);
    EXPECT_TRUE(sizes[1].holds(limits.sequences, limits.sequences, limits.sequences));
    for (const StepSize& size : sizes) {
      EXPECT_LE(size.tokens, size.decode ? sizes[1].tokens : sizes[0].tokens);
      EXPECT_TRUE(size.tokens == 1 || size.tokens % limits.ranks == 0);
      EXPECT_EQ(std::ranges::count(sizes, size), 1);
    }
    for (int64_t n = 1; n <= limits.sequences; ++n) {
      const auto found = smallest_that_holds(sizes, n, n, n, true);
      ASSERT_TRUE(found);
      EXPECT_TRUE(sizes[*found].decode);
      EXPECT_LE(2 * sizes[*found].tokens, 3 * n + 2 * limits.ranks) << n;
    }
    for (int64_t n = 1; n <= limits.tokens; ++n) {
      const int64_t sequences = std::min(n, limits.sequences);
      const auto found = smallest_that_holds(sizes, n, sequences, sequences, false);
      ASSERT_TRUE(found);
      EXPECT_FALSE(sizes[*found].decode);
      if (n > 256) {
        EXPECT_LE(4 * sizes[*found].tokens, 5 * n + 4 * limits.ranks + 8) << n;
      }
    }
  }
}

TEST(StepSizes, FewSizesStillHoldEveryStep) {
  const std::vector<StepSize> all = step_sizes({.sequences = 16, .tokens = 300, .rows = 80});
  const std::span<const StepSize> two(all.data(), 2);
  EXPECT_EQ(smallest_that_holds(two, 1, 1, 1, true), 1u);
  EXPECT_EQ(smallest_that_holds(two, 16, 16, 16, true), 1u);
  EXPECT_EQ(smallest_that_holds(two, 17, 16, 1, false), 0u);
  EXPECT_EQ(smallest_that_holds(two, 301, 1, 1, false), std::nullopt);
  EXPECT_EQ(describe(all), "6 of decodes (1 to 16 rows), 4 with prompts (64 to 300 tokens)");
}

}  // namespace
}  // namespace braid
