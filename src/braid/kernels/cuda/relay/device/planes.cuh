#pragma once

#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/relay/relay_config.h"

// x beside blocks: each group of 32 elements becomes 15-bit integers v and a power of two, x = v
// 2^e. bf16 keeps an error up to 2^-15 of the group's largest element. v = 256 high + low, both
// signed bytes, so products with 8-bit integers are exact.
namespace braid::cuda {

struct RelayPlanes {
  uint8_t* bytes;  // [k / 32, 2, 32]: high, low
  float* sums;     // [k / 16]
  float* scales;   // [k / 32]
  int groups;

  __device__ RelayPlanes(uint8_t* x, int k)
      : bytes(x),
        sums(reinterpret_cast<float*>(x + 2 * k)),
        scales(reinterpret_cast<float*>(x + 2 * k) + k / 16),
        groups(k / 32) {}

  // The i-th two pairs, if there are as many; the warp does neighbouring ones.
  __device__ __forceinline__ void put(int i, uint32_t first, uint32_t second) const {
    const uint32_t pairs = __vmaxu2(first & 0x7fff7fffu, second & 0x7fff7fffu);
    uint32_t most = max(pairs >> 16, pairs & 0xffff);
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2) {
      most = max(most, __shfl_xor_sync(0xffffffff, most, mask));
    }
    // |v| < 2^14 by the largest exponent, biased. The smallest floats become zeros; no number stays
    // none.
    const uint32_t exponent = max(most >> 7, 13);
    const float inverse = __uint_as_float((267 - exponent) << 23);
    const float scale = __uint_as_float(exponent == 255 ? 0x7fffffffu : (exponent - 13) << 23);
    // The low bits of such a large float are v + 2^15.
    constexpr float kPlace = 0x1.8p23f + 0x1p15f;
    const auto integer = [&](float x) { return __float_as_uint(fmaf(x, inverse, kPlace)); };
    const uint32_t v = __byte_perm(integer(ptx::low_half(first)), integer(ptx::high_half(first)),
                                   0x5410),
                   u = __byte_perm(integer(ptx::low_half(second)), integer(ptx::high_half(second)),
                                   0x5410);
    const uint32_t low = __byte_perm(v, u, 0x6420);
    const uint32_t high = __byte_perm(v + 0x00800080u, u + 0x00800080u, 0x7531) ^ 0x80808080u;
    int sum = __dp4a(static_cast<int>(low), 0x01010101,
                     256 * __dp4a(static_cast<int>(high), 0x01010101, 0));
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    if (i >= 8 * groups) return;
    auto* words = reinterpret_cast<uint32_t*>(bytes + i / 8 * 64) + i % 8;
    words[0] = high;
    words[8] = low;
    if (i % 4 == 0) sums[i / 4] = static_cast<float>(sum) * scale;
    if (i % 8 == 0) scales[i / 8] = scale;
  }

  // The i-th pair.
  __device__ float2 pair(int i) const {
    const uint8_t* high = bytes + i / 16 * 64 + i % 16 * 2;
    const auto value = [&](int j) {
      return static_cast<float>(256 * static_cast<int8_t>(high[j]) +
                                static_cast<int8_t>(high[32 + j])) *
             scales[i / 16];
    };
    return {value(0), value(1)};
  }
};

}  // namespace braid::cuda
