#include "braid/kernels/cpu/pointwise/layer_norm.h"

#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {
namespace {

// sum over i of f(x_i), with four sums side by side.
template <class F>
BRAID_INLINE float sum_of(const float* x, int64_t n, F&& f) {
  Vec sums[4] = {};
  int64_t c = 0;
  for (; c + 4 * kLanes <= n; c += 4 * kLanes) {
    for (int i = 0; i < 4; ++i) sums[i] = f(load(x + c + i * kLanes), sums[i]);
  }
  for (; c + kLanes <= n; c += kLanes) sums[0] = f(load(x + c), sums[0]);
  float total = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  if (const int tail = static_cast<int>(n - c)) {
    float lane[kLanes];
    store(lane, f(load_n(x + c, tail), Vec{}));
    for (int i = 0; i < tail; ++i) total += lane[i];
  }
  return total;
}

// Calls f(column, lanes) over n columns.
template <class F>
BRAID_INLINE void for_columns(int64_t n, F&& f) {
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) f(c, kLanes);
  if (c < n) f(c, static_cast<int>(n - c));
}

BRAID_INLINE Vec some(const float* p, int n) {
  return n == kLanes ? load(p) : load_n(p, n);
}

BRAID_INLINE void put(float* p, Vec v, int n) {
  if (n == kLanes) {
    store(p, v);
  } else {
    store_n(p, v, n);
  }
}

}  // namespace

void layer_norm_rows(const LayerNormParams& p, Range rows) {
  const auto n = static_cast<float>(p.group);
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const int64_t modulation = t / p.rows_per_sequence * p.modulation_stride;
    for (int64_t g = 0; g < p.cols; g += p.group) {
      const float* x = p.x + t * p.cols + g;
      float* y = p.y + t * p.cols + g;
      const float* scale = p.scale ? p.scale + modulation + g : nullptr;
      const float* shift = p.shift ? p.shift + modulation + g : nullptr;
      const Vec mean =
          splat(sum_of(
                    x, p.group, [](Vec v, Vec s) __attribute__((always_inline)) { return s + v; }) /
                n);
      const float variance = sum_of(
                                 x, p.group,
                                 [mean](Vec v, Vec s) __attribute__((always_inline)) {
                                   return fma(v - mean, v - mean, s);
                                 }) /
                             n;
      const Vec inverse = splat(1.0f / __builtin_sqrtf(variance + p.eps));
      for_columns(
          p.group, [&](int64_t c, int lanes) __attribute__((always_inline)) {
            Vec v = (some(x + c, lanes) - mean) * inverse;
            if (p.w) v = v * some(p.w + c, lanes);
            if (p.b) v = v + some(p.b + c, lanes);
            if (scale) v = v * (splat(1.0f) + some(scale + c, lanes));
            if (shift) v = v + some(shift + c, lanes);
            put(y + c, v, lanes);
          });
    }
  }
}

void gated_add_rows(const GatedAddParams& p, Range rows) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const float* a = p.a + t * p.cols;
    const float* b = p.b + t * p.cols;
    const float* gate = p.gate + t / p.rows_per_sequence * p.modulation_stride;
    float* y = p.y + t * p.cols;
    for_columns(
        p.cols, [&](int64_t c, int lanes) __attribute__((always_inline)) {
          put(y + c, fma(some(gate + c, lanes), some(b + c, lanes), some(a + c, lanes)), lanes);
        });
  }
}

}  // namespace braid::cpu::BRAID_ISA
