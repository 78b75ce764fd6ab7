#pragma once

#include "braid/kernels/cuda/linear/device/weight_steps.cuh"
#include "braid/kernels/cuda/ptx/shared.h"

// Eight weights of a block row, as two m16n8k16 steps take the weights from a thread, in
// ldmatrix's order of x: thread t of a quad has elements 2t, 2t + 1 and the elements 8, 16 and 24
// further. Weights are small integers f, exact in bf16, and per group of elements: w = scale * f +
// zero.
namespace braid::cuda {

// Bytes q < 128 at i, i + 1, i + 8 and i + 9, for even i.
__device__ inline uint32_t four_bytes(uint32_t address) {
  return __byte_perm(ptx::load_shared_u16(address), ptx::load_shared_u16(address + 8), 0x5410);
}

__device__ inline float shared_f16(uint32_t address) {
  const auto bits = static_cast<unsigned short>(ptx::load_shared_u16(address));
  return __half2float(__ushort_as_half(bits));
}

__device__ inline float2 two_floats(uint32_t halves) {
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

// Moves bits 0, 1, 8 and 9 of x to bit 4 in each byte.
__device__ inline uint32_t spread_fifth_pairs(uint32_t x) {
  return spread_fifth_bits((x & 3) | (x >> 6 & 12));
}

// Turns pairs of bf16 128 + q into q - kOffset.
template <int kOffset>
__device__ inline uint2 signed_pairs(uint2 v) {
  constexpr uint32_t kPair = 0x43004300u + kOffset * 0x00010001u;  // 128 + offset, twice
  const auto subtract = [](uint32_t pair) {
    const uint32_t by = kPair;
    const __nv_bfloat162 d = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&pair),
                                     *reinterpret_cast<const __nv_bfloat162*>(&by));
    return *reinterpret_cast<const uint32_t*>(&d);
  };
  return {subtract(v.x), subtract(v.y)};
}

template <DType kType>
struct PanelBlocks;

// `row` is the shared address of the row's slab, `s` the step of 32 elements in the slab.
template <class Block, int kOffset, bool kHasMin, bool kFifth>
struct PanelNibbles {
  static constexpr int kGroups = 1;
  static constexpr bool kMin = kHasMin;
  __device__ static uint4 load(uint32_t row, int s, int t, float* scale, float* zero) {
    const uint32_t block = row + sizeof(Block) * s;
    constexpr int kHigh = kMin ? 4 : 2;
    constexpr int kQs = kHigh + (kFifth ? 4 : 0);
    const uint32_t q = four_bytes(block + 2 * t + kQs);
    uint32_t low = q & 0x0f0f0f0fu, high = q >> 4 & 0x0f0f0f0fu;
    if constexpr (kFifth) {
      const uint32_t bits = ptx::load_shared_u16(block + kHigh) >> 2 * t;
      const uint32_t high_bits = ptx::load_shared_u16(block + kHigh + 2) >> 2 * t;
      low |= spread_fifth_pairs(bits);
      high |= spread_fifth_pairs(high_bits);
    }
    if constexpr (kMin) {
      const float2 d = two_floats(ptx::load_shared_u32(block));
      *scale = d.x;
      *zero = d.y - 128 * d.x;
      return join(bytes_plus_128(low), bytes_plus_128(high));
    } else {
      *scale = shared_f16(block);
      return join(signed_pairs<kOffset>(bytes_plus_128(low)),
                  signed_pairs<kOffset>(bytes_plus_128(high)));
    }
  }
};
template <>
struct PanelBlocks<DType::q4_0> : PanelNibbles<BlockQ4_0, 8, false, false> {};
template <>
struct PanelBlocks<DType::q4_1> : PanelNibbles<BlockQ4_1, 0, true, false> {};
template <>
struct PanelBlocks<DType::q5_0> : PanelNibbles<BlockQ5_0, 16, false, true> {};
template <>
struct PanelBlocks<DType::q5_1> : PanelNibbles<BlockQ5_1, 0, true, true> {};

template <>
struct PanelBlocks<DType::q8_0> {
  static constexpr int kGroups = 1;
  static constexpr bool kMin = false;
  __device__ static uint4 load(uint32_t row, int s, int t, float* scale, float*) {
    using Step = WeightStep<DType::q8_0>;
    const uint32_t block = row + sizeof(BlockQ8_0) * s;
    const uint2 a = bytes_plus_128(four_bytes(block + 2 * t + 2));
    const uint2 b = bytes_plus_128(four_bytes(block + 2 * t + 18));
    *scale = shared_f16(block);
    return {Step::convert(a.x), Step::convert(a.y), Step::convert(b.x), Step::convert(b.y)};
  }
};

template <class Block, bool kFifth>
struct PanelSuper {
  static constexpr int kGroups = 1;
  static constexpr bool kMin = true;
  __device__ static uint4 load(uint32_t row, int s, int t, float* scale, float* zero) {
    const uint32_t q = row + offsetof(Block, qs) + 32 * (s >> 1) + 2 * t;
    const int shift = 4 * (s & 1);
    uint32_t low = four_bytes(q) >> shift & 0x0f0f0f0fu;
    uint32_t high = four_bytes(q + 16) >> shift & 0x0f0f0f0fu;
    if constexpr (kFifth) {
      const uint32_t qh = row + 16 + 2 * t;
      low |= (four_bytes(qh) >> s & 0x01010101u) << 4;
      high |= (four_bytes(qh + 16) >> s & 0x01010101u) << 4;
    }
    const float2 f = scales(ptx::load_shared_u32x4(row), s);
    *scale = f.x;
    *zero = f.y - 128 * f.x;
    return join(bytes_plus_128(low), bytes_plus_128(high));
  }
  // d * scale and -dmin * min of group s, from a block's d, dmin and `scales`.
  __device__ static float2 scales(const uint4& head, int s) {
    const int shift = 8 * (s & 3);
    const uint32_t b0 = head.y >> shift & 255, b1 = head.z >> shift & 255;
    const uint32_t b2 = head.w >> shift & 255;
    const bool late = s >= 4;
    const uint32_t sc = late ? (b2 & 15) | b0 >> 6 << 4 : b0 & 63;
    const uint32_t mn = late ? b2 >> 4 | b1 >> 6 << 4 : b1 & 63;
    const float2 d = two_floats(head.x);
    return {d.x * static_cast<float>(sc), -d.y * static_cast<float>(mn)};
  }
};
template <>
struct PanelBlocks<DType::q4_k> : PanelSuper<BlockQ4_K, false> {};
template <>
struct PanelBlocks<DType::q5_k> : PanelSuper<BlockQ5_K, true> {};

template <>
struct PanelBlocks<DType::q6_k> {
  static constexpr int kGroups = 2;
  static constexpr bool kMin = false;
  __device__ static uint4 load(uint32_t row, int s, int t, float* scale, float*) {
    const int half = s >> 2, quarter = s & 3;
    const uint32_t ql = row + 64 * half + 32 * (quarter & 1) + 2 * t;
    const uint32_t qh = row + offsetof(BlockQ6_K, qh) + 32 * half + 2 * t;
    const int low_shift = 4 * (quarter >> 1), high_shift = 2 * quarter;
    const float d = shared_f16(row + offsetof(BlockQ6_K, d));
    const uint32_t both = ptx::load_shared_u16(row + offsetof(BlockQ6_K, scales) + 2 * s);
    uint2 f[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t low = four_bytes(ql + 16 * i) >> low_shift & 0x0f0f0f0fu;
      const uint32_t high = (four_bytes(qh + 16 * i) >> high_shift & 0x03030303u) << 4;
      f[i] = signed_pairs<32>(bytes_plus_128(low | high));
      scale[i] = d * static_cast<float>(static_cast<int8_t>(both >> 8 * i));
    }
    return join(f[0], f[1]);
  }
};

}  // namespace braid::cuda
