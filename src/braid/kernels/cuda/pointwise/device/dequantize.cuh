#pragma once

#include <cuda_fp16.h>

#include "braid/tensor/quant.h"

// Eight consecutive elements, e = 0, 8, ... of a GGUF block, in tensor/quant.h's layout and
// arithmetic: products and sums are rounded in the same steps, so results are bitwise equal. Blocks
// are 2-byte aligned.
namespace braid::cuda {

__device__ inline float half_value(const f16& x) {
  return __half2float(__ushort_as_half(x.bits));
}

// Element i in the 32-element formats: a nibble, and a fifth bit.
__device__ inline int nibble(const uint8_t* qs, int i) {
  return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}
__device__ inline int fifth_bit(const uint8_t* qh, int i) {
  return (qh[i / 8] >> (i % 8) & 1) << 4;
}

__device__ inline void dequantize8(const BlockQ4_0& b, int e, float (&out)[8]) {
  const float d = half_value(b.d);
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = d * static_cast<float>(nibble(b.qs, e + j) - 8);
}

__device__ inline void dequantize8(const BlockQ4_1& b, int e, float (&out)[8]) {
  const float d = half_value(b.d), m = half_value(b.m);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    out[j] = __fadd_rn(__fmul_rn(d, static_cast<float>(nibble(b.qs, e + j))), m);
  }
}

__device__ inline void dequantize8(const BlockQ5_0& b, int e, float (&out)[8]) {
  const float d = half_value(b.d);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    out[j] = d * static_cast<float>((nibble(b.qs, e + j) | fifth_bit(b.qh, e + j)) - 16);
  }
}

__device__ inline void dequantize8(const BlockQ5_1& b, int e, float (&out)[8]) {
  const float d = half_value(b.d), m = half_value(b.m);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int q = nibble(b.qs, e + j) | fifth_bit(b.qh, e + j);
    out[j] = __fadd_rn(__fmul_rn(d, static_cast<float>(q)), m);
  }
}

__device__ inline void dequantize8(const BlockQ8_0& b, int e, float (&out)[8]) {
  const float d = half_value(b.d);
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = d * static_cast<float>(b.qs[e + j]);
}

// Scale and minimum for a group of 32, times the block's.
template <class Block>
__device__ inline void scale_min_k(const Block& b, int group, float& scale, float& min) {
  int s, m;
  if (group < 4) {
    s = b.scales[group] & 63;
    m = b.scales[group + 4] & 63;
  } else {
    s = (b.scales[group + 4] & 15) | (b.scales[group - 4] >> 6) << 4;
    m = (b.scales[group + 4] >> 4) | (b.scales[group] >> 6) << 4;
  }
  scale = __fmul_rn(half_value(b.d), static_cast<float>(s));
  min = __fmul_rn(half_value(b.dmin), static_cast<float>(m));
}

__device__ inline int nibble_k(const uint8_t* qs, int i) {
  const int packed = qs[i / 64 * 32 + i % 32];
  return i / 32 % 2 == 0 ? packed & 15 : packed >> 4;
}

__device__ inline void dequantize8(const BlockQ4_K& b, int e, float (&out)[8]) {
  float scale, min;
  scale_min_k(b, e / 32, scale, min);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    out[j] = __fsub_rn(__fmul_rn(scale, static_cast<float>(nibble_k(b.qs, e + j))), min);
  }
}

__device__ inline void dequantize8(const BlockQ5_K& b, int e, float (&out)[8]) {
  float scale, min;
  scale_min_k(b, e / 32, scale, min);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int i = e + j;
    const int q = nibble_k(b.qs, i) | (b.qh[i % 32] >> (i / 32) & 1) << 4;
    out[j] = __fsub_rn(__fmul_rn(scale, static_cast<float>(q)), min);
  }
}

__device__ inline void dequantize8(const BlockQ6_K& b, int e, float (&out)[8]) {
  const float scale = __fmul_rn(half_value(b.d), static_cast<float>(b.scales[e / 16]));
  const int half = e / 128, quarter = e % 128 / 32;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int lane = (e + j) % 32;
    const int packed = b.ql[half * 64 + quarter % 2 * 32 + lane];
    const int low = quarter < 2 ? packed & 15 : packed >> 4;
    const int high = b.qh[half * 32 + lane] >> (2 * quarter) & 3;
    out[j] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

}  // namespace braid::cuda
