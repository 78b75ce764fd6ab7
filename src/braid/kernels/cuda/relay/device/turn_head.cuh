#pragma once

#include <cstdint>

// Norm and rope of a head, between products and attention.
namespace braid::cuda {

// cos and sin of a position, [2, 64], by `threads` threads. `a` has turns, pairs and factor.
template <class Args>
__device__ __forceinline__ void put_turns(const Args& a, int64_t position, float* turns, int thread,
                                          int threads) {
  for (int i = thread; i < a.pairs; i += threads) {
    // As rope_append: the product modulo 2^64 is the angle modulo one turn.
    const uint64_t angle = static_cast<uint64_t>(position) * __ldg(a.turns + i);
    float sin, cos;
    sincospif(__int2float_rn(static_cast<int>(angle >> 32)) * 0x1p-31f, &sin, &cos);
    turns[i] = cos * a.factor;
    turns[64 + i] = sin * a.factor;
  }
}

// A warp norms a head and turns its first 2 * pairs elements: put(e, x) receives every element of
// raw(e). `norm`: [D] or null.
template <int kD, class Raw, class Put>
__device__ __forceinline__ void turn_head(const Raw& raw, const float* norm, float eps, int pairs,
                                          bool interleaved, const float* turns, const Put& put) {
  const int lane = threadIdx.x % 32;
  float scale = 1;
  if (norm != nullptr) {
    float sum = 0;
#pragma unroll
    for (int e = 0; e < kD; e += 32) sum += raw(e + lane) * raw(e + lane);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    scale = rsqrtf(sum / kD + eps);
  }
  const auto normed = [&](int e) {
    return norm == nullptr ? raw(e) : raw(e) * (scale * __ldg(norm + e));
  };
#pragma unroll 1
  for (int e = lane; e < kD; e += 32) {
    float x = normed(e);
    if (e < 2 * pairs) {
      const bool second = interleaved ? e % 2 == 1 : e >= pairs;
      const int step = interleaved ? 1 : pairs;
      const int pair = interleaved ? e / 2 : second ? e - pairs : e;
      const float other = normed(second ? e - step : e + step);
      const float cos = turns[pair], sin = turns[64 + pair];
      x = second ? other * sin + x * cos : x * cos - other * sin;
    }
    put(e, x);
  }
}

}  // namespace braid::cuda
