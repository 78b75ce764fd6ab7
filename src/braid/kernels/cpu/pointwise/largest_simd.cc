#include <limits>

#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {

// max(a, b) is b where either is NaN: `tops` never takes a NaN, and clamping from below keeps it.
float largest_of_block(const float* x, int64_t n, float& odd) {
  constexpr int kWide = 4;  // chains of dependent instructions
  const Vec least = splat(std::numeric_limits<float>::lowest()), zero = splat(0.0f);
  Vec tops[kWide], odds[kWide];
  for (int j = 0; j < kWide; ++j) {
    tops[j] = splat(0.0f) - splat(std::numeric_limits<float>::infinity());
    odds[j] = zero;
  }
  int64_t i = 0;
  for (; i + kWide * kLanes <= n; i += kWide * kLanes) {
    for (int j = 0; j < kWide; ++j) {
      const Vec v = load(x + i + j * kLanes);
      tops[j] = max(v, tops[j]);
      odds[j] = fma(max(least, v), zero, odds[j]);  // NaN and infinity times 0 are NaN
    }
  }
  const Vec top = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
  odd += sum(odds[0] + odds[1] + odds[2] + odds[3]);
  float best = max_lane(top);
  for (; i < n; ++i) {
    best = x[i] > best ? x[i] : best;
    odd += (x[i] < std::numeric_limits<float>::lowest() ? 0.0f : x[i]) * 0.0f;
  }
  return best;
}

}  // namespace braid::cpu::BRAID_ISA
