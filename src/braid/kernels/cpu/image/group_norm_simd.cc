#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {
namespace {

BRAID_INLINE Vec some(const float* p, int n) {
  return n == kLanes ? load(p) : load_n(p, n);
}
BRAID_INLINE void put(float* p, Vec v, int n) {
  n == kLanes ? store(p, v) : store_n(p, v, n);
}

// kVecs vectors of channels side by side over all rows; the last has `lanes`.
template <int kVecs>
BRAID_INLINE void sum_columns(const float* x, const float* pivot, int64_t rows, int64_t channels,
                              int lanes, float* sums, float* squares) {
  Vec base[kVecs], first[kVecs] = {}, second[kVecs] = {};
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) base[v] = some(pivot + v * kLanes, lanes);
  for (int64_t row = 0; row < rows; ++row) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      const Vec d = some(x + row * channels + v * kLanes, lanes) - base[v];
      first[v] = first[v] + d;
      second[v] = fma(d, d, second[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    put(sums + v * kLanes, first[v], lanes);
    put(squares + v * kLanes, second[v], lanes);
  }
}

}  // namespace

void channel_sums(const float* x, const float* pivot, int64_t rows, int64_t channels, float* sums,
                  float* squares) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) {
    sum_columns<4>(x + c, pivot + c, rows, channels, kLanes, sums + c, squares + c);
  }
  for (; c < channels; c += kLanes) {
    const int lanes = channels - c < kLanes ? static_cast<int>(channels - c) : kLanes;
    sum_columns<1>(x + c, pivot + c, rows, channels, lanes, sums + c, squares + c);
  }
}

void scale_channels(const float* x, const float* scale, const float* shift, int64_t rows,
                    int64_t channels, bool silu, float* y) {
  for (int64_t row = 0; row < rows; ++row, x += channels, y += channels) {
    for (int64_t c = 0; c < channels; c += kLanes) {
      const int lanes = channels - c < kLanes ? static_cast<int>(channels - c) : kLanes;
      Vec v = fma(some(x + c, lanes), some(scale + c, lanes), some(shift + c, lanes));
      if (silu) v = v / (splat(1.0f) + exp(-v));
      put(y + c, v, lanes);
    }
  }
}

}  // namespace braid::cpu::BRAID_ISA
