#include "braid/kernels/cpu/pointwise/largest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace braid::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Element by element.
Largest expected(const std::vector<float>& x) {
  Largest best{.value = -kInfinity};
  for (size_t i = 0; i < x.size(); ++i) {
    best.numbers &= x[i] < kInfinity;
    if (!(x[i] > best.value)) continue;
    best.value = x[i];
    best.at = static_cast<int64_t>(i);
  }
  return best;
}

void expect_equal(const std::vector<float>& x, Isa isa, const std::string& what) {
  const Largest want = expected(x), got = largest(x.data(), std::ssize(x), isa);
  EXPECT_EQ(got.numbers, want.numbers) << what << ", " << name(isa) << ", " << x.size();
  EXPECT_EQ(got.at, want.at) << what << ", " << name(isa) << ", " << x.size();
  EXPECT_EQ(got.value, want.value) << what << ", " << name(isa) << ", " << x.size();
}

TEST(Largest, IsTheFirstOfThemAtEverySize) {
  std::mt19937 random(3);
  for (const Isa isa : usable_isas()) {
    for (const int n : {0, 1, 3, 4, 15, 16, 17, 63, 64, 65, 127, 2047, 2048, 2049, 4100, 49152}) {
      std::vector<float> x(static_cast<size_t>(n));
      for (float& v : x) v = static_cast<float>(random() % 7) - 9;  // many are equal
      expect_equal(x, isa, "plain");
      for (const size_t at : {size_t{0}, x.size() / 2, x.size() - 1}) {
        if (at >= x.size()) continue;
        for (const float v :
             {NAN, -NAN, kInfinity, -kInfinity, 100.0f, std::numeric_limits<float>::max(),
              std::numeric_limits<float>::lowest()}) {
          std::vector<float> y = x;
          y[at] = v;
          expect_equal(y, isa, "with " + std::to_string(v));
          std::ranges::fill(y, -kInfinity);
          expect_equal(y, isa, "nothing");
          y[at] = v;
          expect_equal(y, isa, "alone " + std::to_string(v));
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::cpu
