#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {
namespace {

template <class F>
BRAID_INLINE void for_each_vec(const float* a, const float* b, float* y, int64_t n, F&& f) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) store(y + i, f(load(a + i), load(b + i)));
  if (const int tail = static_cast<int>(n - whole)) {
    store_n(y + whole, f(load_n(a + whole, tail), load_n(b + whole, tail)), tail);
  }
}

// x / (1 + e^-scaled)
BRAID_INLINE Vec gate(Vec x, Vec scaled) {
  return x / (splat(1.0f) + exp(-scaled));
}

}  // namespace

void add_row(const float* a, const float* b, float* y, int64_t n) {
  for_each_vec(
      a, b, y, n, [](Vec x, Vec z) __attribute__((always_inline)) { return x + z; });
}

void silu_mul_row(const float* a, const float* b, float* y, int64_t n) {
  for_each_vec(
      a, b, y, n, [](Vec x, Vec z) __attribute__((always_inline)) { return gate(x, x) * z; });
}

// 1 + tanh(u) = 2 / (1 + e^-2u), so GELU is a gate too.
void gelu_tanh_mul_row(const float* a, const float* b, float* y, int64_t n) {
  constexpr float kTwoSqrtTwoOverPi = 1.5957691216057308f;
  for_each_vec(
      a, b, y, n, [](Vec x, Vec z) __attribute__((always_inline)) {
        const Vec cubic = fma(x * x * splat(0.044715f), x, x);
        return gate(x, cubic * splat(kTwoSqrtTwoOverPi)) * z;
      });
}

}  // namespace braid::cpu::BRAID_ISA
