#include "braid/kernels/cuda/pointwise/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

ops::RopeAttrs attrs_of(ops::RopeScaling scaling, float theta) {
  ops::RopeAttrs a;
  a.head_dim = a.rotary_dim = 128;
  a.theta = theta;
  a.scaling = scaling;
  a.factor = scaling == ops::RopeScaling::none ? 1 : 8;
  a.original_context = 8192;
  return a;
}

// The reduced angle against long double, at positions where f32 frequencies fail by far.
TEST(RopeTable, ReducesLargePositions) {
  using enum ops::RopeScaling;
  std::mt19937 rng(7);
  std::vector<float> factors(64);
  for (float& f : factors) f = std::uniform_real_distribution<float>(0.01f, 4.f)(rng);
  for (auto scaling : {none, linear, llama3, yarn}) {
    for (const float* f :
         {static_cast<const float*>(nullptr), static_cast<const float*>(factors.data())}) {
      const ops::RopeAttrs a = attrs_of(scaling, 500000);
      const auto turns = rope_turns(a, f);
      const auto frequencies = ops::rope_frequencies(a, f);
      ASSERT_EQ(turns.size(), frequencies.size());
      for (int32_t position : {0, 1, 17, 4095, 131071, 1048575, 2147483647, -5}) {
        for (size_t i = 0; i < turns.size(); ++i) {
          const uint64_t angle = static_cast<uint64_t>(int64_t{position}) * turns[i];
          const auto got = static_cast<long double>(static_cast<int64_t>(angle)) * 0x1p-64L;
          const long double exact = static_cast<long double>(frequencies[i]) * position /
                                    (2 * std::numbers::pi_v<long double>);
          long double error = got - exact;
          error -= std::rint(error);
          // An entry is off by at most 2^-64 of a turn, pi and the oracle's products by 2^-64 of
          // theirs.
          const long double allowed =
              (std::fabs(exact) * 4 + std::fabs(static_cast<long double>(position)) * 2 + 1) *
              0x1p-63L;
          EXPECT_LE(std::fabs(error), allowed) << "pair " << i << " at " << position;
        }
      }
    }
  }
}

TEST(RopeTable, RefusesFrequenciesThatAreNone) {
  const ops::RopeAttrs a = attrs_of(ops::RopeScaling::none, 10000);
  std::vector<float> factors(64, 1.f);
  factors[5] = 0;
  EXPECT_THROW(rope_turns(a, factors.data()), Error);
  factors[5] = std::nanf("");
  EXPECT_THROW(rope_turns(a, factors.data()), Error);
  factors[5] = -1;  // turns backwards
  EXPECT_EQ(rope_turns(a, factors.data())[5], ~rope_turns(a, nullptr)[5] + 1);
}

}  // namespace
}  // namespace braid::cuda
