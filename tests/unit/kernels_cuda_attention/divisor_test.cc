#include "braid/kernels/cuda/attention/divisor.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace braid::cuda {
namespace {

TEST(Divisor, IsExact) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const auto check = [&](int32_t n, int32_t value) {
    ASSERT_EQ(divide(n, make_divisor(value)), n / value) << n << " / " << value;
  };
  std::mt19937 random(1);
  const auto any = [&] {
    const int bits = static_cast<int>(random() % 31);
    return static_cast<int32_t>(random() & ((2u << bits) - 1) & 0x7fffffffu);
  };
  for (int i = 0; i < 2000; ++i) {
    const int32_t value = i < 600 ? i + 1 : std::max(any(), 1);
    for (int32_t n : {0, 1, value - 1, value, kMost, kMost - 1}) check(n, value);
    for (int k = 0; k < 300; ++k) {
      const int32_t n = any();
      check(n, value);
      check(n / value * value, value);  // where the quotient steps
      if (n >= value) check(n / value * value - 1, value);
    }
  }
  check(kMost, kMost);
  check(kMost, 1 << 30);
}

}  // namespace
}  // namespace braid::cuda
