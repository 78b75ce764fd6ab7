#pragma once

#include <cfloat>
#include <cstdint>

// Values of a row as keys and weights. Weights are integers: every sum is exact and equal in any
// order.
namespace braid::cuda::sampling {

constexpr int kBinBits = 10;
constexpr int kBins = 1 << kBinBits;
constexpr float kBinsPerNat = 102.3f;  // the last bin takes all below e^-10 of the top

// Maps floats to integers in the same order.
__device__ inline uint32_t order_of(float x) {
  const uint32_t u = __float_as_uint(x);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ inline float value_of(uint32_t order) {
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

// More likely first, ties by the lower id: a total order, the largest key first.
__device__ inline uint64_t key_of(float x, int32_t id) {
  return static_cast<uint64_t>(order_of(x)) << 32 | ~static_cast<uint32_t>(id);
}
__device__ inline float value_of_key(uint64_t key) {
  return value_of(static_cast<uint32_t>(key >> 32));
}
__device__ inline int32_t id_of_key(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// A logit for the sampler: NaN as -inf, +inf as the largest f32, and -0 as 0, so equal values have
// equal bits.
__device__ inline float cleaned(float x) {
  if (x != x) return -INFINITY;
  return fminf(x, FLT_MAX) + 0.f;
}

// A CTA's slice of a row; value i has id first_id + i.
struct Scores {
  const float* values;  // [n]
  bool clean;           // they are cleaned already
  int n;
  int first_id;
  float top;          // the row's largest
  float temperature;  // > 0
  float floor;        // lower values do not take part
  float scale;        // the largest logit's weight: a power of two; V such weights fit 63 bits

  __device__ float value(int i) const { return clean ? values[i] : cleaned(values[i]); }
  // <= 0, and rounded as the CPU sampler does.
  __device__ float exponent(float x) const {
    const float d = __fsub_rn(x, top);
    return temperature == 1 ? d : __fdiv_rn(d, temperature);
  }
  __device__ uint64_t weight(float x) const {
    return x >= floor ? __float2ull_rn(expf(exponent(x)) * scale) : 0;
  }
  // Falls with x, and equal x share a bin.
  __device__ int bin(float x) const {
    return min(kBins - 1, static_cast<int>(exponent(x) * -kBinsPerNat));
  }
};

// A power of two; V times the result fits 63 bits.
__device__ inline float weight_scale(int32_t vocab) {
  const int bits = 32 - __clz(vocab);
  return exp2f(static_cast<float>(min(46, 63 - bits)));
}

}  // namespace braid::cuda::sampling
