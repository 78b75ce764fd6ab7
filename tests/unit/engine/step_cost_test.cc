// The cost of a step, learnt from the steps that ran.
#include "braid/engine/requests/step_cost.h"

#include <gtest/gtest.h>

#include <random>

namespace braid {
namespace {

TEST(StepCostFit, FindsTheCoefficientsOfStepsThatFollowThem) {
  std::mt19937 random(3);
  StepCostFit fit;
  const StepCost truth{.step_ms = 2, .token_ms = 0.25, .key_ms = 0.001};
  for (int i = 0; i < 200; ++i) {
    const auto tokens = static_cast<int64_t>(random() % 500 + 1);
    const auto keys = static_cast<int64_t>(random() % 100000);
    fit.add(tokens, keys, truth.of(tokens, keys));
  }
  EXPECT_NEAR(fit.cost().step_ms, 2, 0.01);
  EXPECT_NEAR(fit.cost().token_ms, 0.25, 0.001);
  EXPECT_NEAR(fit.cost().key_ms, 0.001, 1e-5);
  StepCostFit same;  // nothing but equal steps: their sum is right
  for (int i = 0; i < 10; ++i) same.add(8, 100, 5);
  EXPECT_NEAR(same.cost().of(8, 100), 5, 0.01);
}

}  // namespace
}  // namespace braid
