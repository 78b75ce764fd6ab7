// The cost of a step, learnt from the steps that ran.
#include "braid/engine/requests/step_cost.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

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

// The least error is where no coefficient can go on falling: the slope is 0, or the coefficient is
// 0 and the slope is not negative.
TEST(NonNegativeFit, FindsTheLeastErrorWithinItsBounds) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  int bounded = 0;
  for (int trial = 0; trial < 200; ++trial) {
    NonNegativeFit<4> fit;
    std::vector<std::pair<std::array<double, 4>, double>> samples;
    std::array<double, 4> truth;
    for (double& t : truth) t = normal(random);
    for (int i = 0; i < 30; ++i) {
      std::array<double, 4> x;
      for (double& number : x) number = std::abs(normal(random));
      double y = 0.1 * normal(random);
      for (size_t c = 0; c < 4; ++c) y += truth[c] * x[c];
      samples.emplace_back(x, y);
      fit.add(x, y);
    }
    const std::array<double, 4> got = fit.solve();
    std::array<double, 4> slope{};
    for (const auto& [x, y] : samples) {
      double off = -y;
      for (size_t c = 0; c < 4; ++c) off += got[c] * x[c];
      for (size_t c = 0; c < 4; ++c) slope[c] += off * x[c];
    }
    for (size_t c = 0; c < 4; ++c) {
      ASSERT_GE(got[c], 0);
      ASSERT_GE(slope[c], -1e-5);
      if (got[c] > 0) {
        ASSERT_NEAR(slope[c], 0, 1e-5);
      }
      bounded += got[c] == 0;
    }
  }
  EXPECT_GT(bounded, 100);
}

TEST(NonNegativeFit, ANumberThatNoSampleHasCostsNothing) {
  NonNegativeFit<2> fit;
  EXPECT_EQ(fit.solve()[0], 0);
  for (int i = 1; i < 5; ++i) fit.add({static_cast<double>(i), 0}, 3 * i);
  EXPECT_NEAR(fit.solve()[0], 3, 1e-6);
  EXPECT_EQ(fit.solve()[1], 0);
}

}  // namespace
}  // namespace braid
