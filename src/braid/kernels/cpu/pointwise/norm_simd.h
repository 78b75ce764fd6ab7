#pragma once

#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {

// x, y: [n] f32, y may be x; w: [n] f32.
BRAID_INLINE void rms_norm_group(const float* x, const float* w, float* y, int64_t n, float eps) {
  const int64_t whole = n / kLanes * kLanes;
  const int tail = static_cast<int>(n - whole);
  Vec squares[4] = {};
  int64_t c = 0;
  for (; c + 4 * kLanes <= whole; c += 4 * kLanes) {
    for (int i = 0; i < 4; ++i) {
      const Vec v = load(x + c + i * kLanes);
      squares[i] = fma(v, v, squares[i]);
    }
  }
  for (; c < whole; c += kLanes) {
    const Vec v = load(x + c);
    squares[0] = fma(v, v, squares[0]);
  }
  if (tail) {
    const Vec v = load_n(x + whole, tail);
    squares[1] = fma(v, v, squares[1]);
  }
  const float total = sum((squares[0] + squares[1]) + (squares[2] + squares[3]));
  const Vec scale = splat(1.0f / __builtin_sqrtf(total / static_cast<float>(n) + eps));
  for (c = 0; c < whole; c += kLanes) store(y + c, load(x + c) * scale * load(w + c));
  if (tail) store_n(y + whole, load_n(x + whole, tail) * scale * load_n(w + whole, tail), tail);
}

}  // namespace braid::cpu::BRAID_ISA
