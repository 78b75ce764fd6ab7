#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/tensor/quant.h"

// Eight weights of a row as 16 bytes, as two m16n8k16 steps take the weights from a thread. Thread
// t of a quad holds elements 8t .. 8t + 7 of the step's 32, or with kSplit 4t .. 4t + 3 and 16 + 4t
// .. + 3. Block formats yield small integers f, exact in bf16, and per group: w = scale * f + zero.
namespace braid::cuda {

__device__ inline uint32_t load_u16x2(const void* p) {  // 2-byte aligned
  const auto* h = static_cast<const uint16_t*>(p);
  return h[0] | static_cast<uint32_t>(h[1]) << 16;
}

__device__ inline float f16_at(const void* p) {
  return __half2float(*static_cast<const __half*>(p));
}

__device__ inline uint32_t pack_bf16(float low, float high) {
  return ptx::pack<__nv_bfloat16>(low, high);
}

// Four bytes q < 128 as four bf16 128 + q.
__device__ inline uint2 bytes_plus_128(uint32_t bytes) {
  return {__byte_perm(bytes, 0x43434343u, 0x4140), __byte_perm(bytes, 0x43434343u, 0x4342)};
}

// Moves bits 0..3 of x to bit 4 in each byte.
__device__ inline uint32_t spread_fifth_bits(uint32_t x) {
  return ((x & 15) * 0x00204081u & 0x01010101u) << 4;
}

__device__ inline uint4 join(uint2 a, uint2 b) {
  return {a.x, a.y, b.x, b.y};
}

template <DType kType>
struct WeightStep;

// `row` is the row's first element in the stage, `s` the step of 32 elements.
template <>
struct WeightStep<DType::bf16> {
  static constexpr int kGroups = 0;
  static constexpr bool kSplit = false;
  __device__ static uint4 load(const uint8_t* row, int s, int t, float*, float*) {
    return *reinterpret_cast<const uint4*>(row + 64 * s + 16 * t);
  }
};

template <>
struct WeightStep<DType::f16> {
  static constexpr int kGroups = 0;
  static constexpr bool kSplit = false;
  __device__ static uint32_t convert(uint32_t h) {
    const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&h));
    return pack_bf16(f.x, f.y);
  }
  __device__ static uint4 load(const uint8_t* row, int s, int t, float*, float*) {
    const uint4 h = *reinterpret_cast<const uint4*>(row + 64 * s + 16 * t);
    return {convert(h.x), convert(h.y), convert(h.z), convert(h.w)};
  }
};

template <>
struct WeightStep<DType::f32> {
  static constexpr int kGroups = 0;
  static constexpr bool kSplit = false;
  __device__ static uint4 load(const uint8_t* row, int s, int t, float*, float*) {
    const auto* f = reinterpret_cast<const float4*>(row + 128 * s + 32 * t);
    const float4 a = f[0], b = f[1];
    return {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)};
  }
};

// The 32-element formats: nibbles of bytes 4t .. 4t + 3, a fifth bit, offset or minimum.
template <DType kType, int kBytes, int kOffset, bool kMin, bool kFifth>
struct NibbleStep {
  static constexpr int kGroups = 1;
  static constexpr bool kSplit = true;
  __device__ static uint4 load(const uint8_t* row, int s, int t, float* scale, float* zero) {
    const uint8_t* block = row + kBytes * s;
    constexpr int kHigh = kMin ? 4 : 2;
    constexpr int kQs = kHigh + (kFifth ? 4 : 0);
    constexpr bool kWords = kBytes % 4 == 0;
    const auto word = [](const uint8_t* p) {
      return kWords ? *reinterpret_cast<const uint32_t*>(p) : load_u16x2(p);
    };
    const uint32_t q = word(block + kQs + 4 * t);
    uint32_t low = q & 0x0f0f0f0fu, high = q >> 4 & 0x0f0f0f0fu;
    if constexpr (kFifth) {
      const uint32_t bits = word(block + kHigh) >> 4 * t;
      low |= spread_fifth_bits(bits);
      high |= spread_fifth_bits(bits >> 16);
    }
    *scale = f16_at(block);
    *zero = -static_cast<float>(128 + kOffset) * *scale;
    if constexpr (kMin) *zero += f16_at(block + 2);
    return join(bytes_plus_128(low), bytes_plus_128(high));
  }
};
template <>
struct WeightStep<DType::q4_0> : NibbleStep<DType::q4_0, sizeof(BlockQ4_0), 8, false, false> {};
template <>
struct WeightStep<DType::q4_1> : NibbleStep<DType::q4_1, sizeof(BlockQ4_1), 0, true, false> {};
template <>
struct WeightStep<DType::q5_0> : NibbleStep<DType::q5_0, sizeof(BlockQ5_0), 16, false, true> {};
template <>
struct WeightStep<DType::q5_1> : NibbleStep<DType::q5_1, sizeof(BlockQ5_1), 0, true, true> {};

template <>
struct WeightStep<DType::q8_0> {
  static constexpr int kGroups = 1;
  static constexpr bool kSplit = true;
  // Two signed bytes, spread into halves, as bf16: (128 + low seven bits) - (128 or 256).
  __device__ static uint32_t convert(uint32_t halves) {
    const uint32_t low = halves & 0x437f437fu, sign = halves & 0x43804380u;
    const __nv_bfloat162 d = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&low),
                                     *reinterpret_cast<const __nv_bfloat162*>(&sign));
    return *reinterpret_cast<const uint32_t*>(&d);
  }
  __device__ static uint4 load(const uint8_t* row, int s, int t, float* scale, float* zero) {
    const uint8_t* block = row + sizeof(BlockQ8_0) * s;
    const uint2 a = bytes_plus_128(load_u16x2(block + 2 + 4 * t));
    const uint2 b = bytes_plus_128(load_u16x2(block + 18 + 4 * t));
    *scale = f16_at(block);
    *zero = 0;
    return {convert(a.x), convert(a.y), convert(b.x), convert(b.y)};
  }
};

// Groups 2j and 2j + 1 in a super-block are the nibbles of bytes 32j .. 32j + 31; q5_k has group
// g's fifth bit in bit g of qh.
template <class Block, bool kFifth>
struct SuperStep {
  static constexpr int kGroups = 1;
  static constexpr bool kSplit = false;
  __device__ static uint4 load(const uint8_t* row, int s, int t, float* scale, float* zero) {
    const auto& b = *reinterpret_cast<const Block*>(row + sizeof(Block) * (s >> 3));
    const int g = s & 7;
    const uint2 q = *reinterpret_cast<const uint2*>(b.qs + 32 * (g >> 1) + 8 * t);
    const int shift = 4 * (g & 1);
    uint32_t low = q.x >> shift & 0x0f0f0f0fu, high = q.y >> shift & 0x0f0f0f0fu;
    if constexpr (kFifth) {
      const uint2 h = *reinterpret_cast<const uint2*>(b.qh + 8 * t);
      low |= (h.x >> g & 0x01010101u) << 4;
      high |= (h.y >> g & 0x01010101u) << 4;
    }
    const uint32_t b0 = b.scales[g & 3], b1 = b.scales[(g & 3) + 4];
    uint32_t sc = b0 & 63, mn = b1 & 63;
    if (g >= 4) {
      const uint32_t b2 = b.scales[(g & 3) + 8];
      sc = (b2 & 15) | b0 >> 6 << 4;
      mn = b2 >> 4 | b1 >> 6 << 4;
    }
    *scale = f16_at(&b.d) * static_cast<float>(sc);
    *zero = -128 * *scale - f16_at(&b.dmin) * static_cast<float>(mn);
    return join(bytes_plus_128(low), bytes_plus_128(high));
  }
};
template <>
struct WeightStep<DType::q4_k> : SuperStep<BlockQ4_K, false> {};
template <>
struct WeightStep<DType::q5_k> : SuperStep<BlockQ5_K, true> {};

// A quarter of a half of a super-block: nibbles in ql, two high bits in qh, a scale per 16.
template <>
struct WeightStep<DType::q6_k> {
  static constexpr int kGroups = 2;
  static constexpr bool kSplit = true;
  __device__ static uint4 load(const uint8_t* row, int s, int t, float* scale, float* zero) {
    const auto& b = *reinterpret_cast<const BlockQ6_K*>(row + sizeof(BlockQ6_K) * (s >> 3));
    const int half = s >> 2 & 1, quarter = s & 3;
    const uint8_t* ql = b.ql + 64 * half + 32 * (quarter & 1) + 4 * t;
    const uint8_t* qh = b.qh + 32 * half + 4 * t;
    const int low_shift = 4 * (quarter >> 1), high_shift = 2 * quarter;
    uint2 f[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t low = load_u16x2(ql + 16 * i) >> low_shift & 0x0f0f0f0fu;
      const uint32_t high = (load_u16x2(qh + 16 * i) >> high_shift & 0x03030303u) << 4;
      f[i] = bytes_plus_128(low | high);
      scale[i] = f16_at(&b.d) * static_cast<float>(b.scales[2 * (s & 7) + i]);
      zero[i] = -160 * scale[i];
    }
    return join(f[0], f[1]);
  }
};

}  // namespace braid::cuda
