#include "braid/ops/dual_chunks.h"

#include <algorithm>
#include <cmath>

namespace braid::ops {

int64_t DualChunks::moves(int64_t position, int64_t key) const {
  return std::min<int64_t>(0, key / chunk * chunk + reach - position);
}

double DualChunks::growth(int64_t position) const {
  if (original == 0 || position < original) return 1;
  const double s =
      0.1 * std::log(static_cast<double>(position + 1) / static_cast<double>(original)) + 1;
  return s * s;
}

void turn_heads(const RopeAttrs& rope, std::span<const double> frequencies, int64_t by,
                int64_t heads, int64_t stride, float* x) {
  const int64_t pairs = rope.rotary_dim / 2;
  const bool half = rope.pairing == RopePairing::half;
  for (int64_t i = 0; i < pairs && by != 0; ++i) {
    const double angle = static_cast<double>(by) * frequencies[i];
    const double c = std::cos(angle), s = std::sin(angle);
    for (int64_t h = 0; h < heads; ++h) {
      float& a = x[h * stride + (half ? i : 2 * i)];
      float& b = x[h * stride + (half ? i + pairs : 2 * i + 1)];
      const double a0 = a, b0 = b;
      a = static_cast<float>(a0 * c - b0 * s);
      b = static_cast<float>(a0 * s + b0 * c);
    }
  }
}

}  // namespace braid::ops
