#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {
namespace {

template <class F>
BRAID_INLINE void for_each_vec(const float* x, float* y, int64_t n, F&& f) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) store(y + i, f(load(x + i), load(y + i)));
  if (const int tail = static_cast<int>(n - whole)) {
    store_n(y + whole, f(load_n(x + whole, tail), load_n(y + whole, tail)), tail);
  }
}

}  // namespace

void scaled_row(const float* x, float factor, float* y, int64_t n) {
  for_each_vec(
      x, y, n, [&](Vec a, Vec) __attribute__((always_inline)) { return splat(factor) * a; });
}

void add_scaled_row(const float* x, float factor, float* y, int64_t n) {
  for_each_vec(
      x, y,
      n, [&](Vec a, Vec b) __attribute__((always_inline)) { return fma(splat(factor), a, b); });
}

}  // namespace braid::cpu::BRAID_ISA
