#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {
namespace {

template <class F>
BRAID_INLINE void for_each_vec(const float* x, float* y, int64_t n, F&& f) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) store(y + i, f(load(x + i)));
  if (const int tail = static_cast<int>(n - whole)) {
    store_n(y + whole, f(load_n(x + whole, tail)), tail);
  }
}

// x / (1 + e^-scaled)
BRAID_INLINE Vec gate(Vec x, Vec scaled) {
  return x / (splat(1.0f) + exp(-scaled));
}

}  // namespace

void silu_row(const float* x, float* y, int64_t n) {
  for_each_vec(
      x, y, n, [](Vec v) __attribute__((always_inline)) { return gate(v, v); });
}

// 1 + tanh(u) = 2 / (1 + e^-2u).
void gelu_tanh_row(const float* x, float* y, int64_t n) {
  constexpr float kTwoSqrtTwoOverPi = 1.5957691216057308f;
  for_each_vec(
      x, y, n, [](Vec v) __attribute__((always_inline)) {
        const Vec cubic = fma(v * v * splat(0.044715f), v, v);
        return gate(v, cubic * splat(kTwoSqrtTwoOverPi));
      });
}

void quick_gelu_row(const float* x, float* y, int64_t n) {
  for_each_vec(
      x, y, n, [](Vec v) __attribute__((always_inline)) { return gate(v, v * splat(1.702f)); });
}

}  // namespace braid::cpu::BRAID_ISA
