#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_args.h"
#include "braid/kernels/cuda/ptx/mma.h"

// What blocks of one token and of several have in common: heads on their way from products to
// attention, and the parts of attention on their way to a sum.
namespace braid::cuda {

// Where a row of a KV head's q, k and v stands: its weight (0 to 2) and its row of that weight.
struct FusedHeadRow {
  int which;
  int row;
  __device__ FusedHeadRow(int head, int in_head, int of_q, int head_dim) {
    which = in_head < of_q ? 0 : in_head < of_q + head_dim ? 1 : 2;
    row = which == 0 ? head * of_q + in_head
                     : head * head_dim + in_head - of_q - (which - 1) * head_dim;
  }
};

// cos and sin of a position, [2, 64], by `threads` threads.
__device__ inline void put_turns(const FusedArgs& a, int64_t position, float* turns, int thread,
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
__device__ __forceinline__ void turn_head(const FusedArgs& a, const Raw& raw, const float* norm,
                                          int pairs, const float* turns, const Put& put) {
  const int lane = threadIdx.x % 32;
  float scale = 1;
  if (norm != nullptr) {
    float sum = 0;
    for (int e = lane; e < kD; e += 32) sum += raw(e) * raw(e);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    scale = rsqrtf(sum / kD + a.qk_eps);
  }
  const auto normed = [&](int e) {
    return norm == nullptr ? raw(e) : raw(e) * (scale * __ldg(norm + e));
  };
#pragma unroll 1
  for (int e = lane; e < kD; e += 32) {
    float x = normed(e);
    if (e < 2 * pairs) {
      const bool second = a.interleaved ? e % 2 == 1 : e >= pairs;
      const int step = a.interleaved ? 1 : pairs;
      const int pair = a.interleaved ? e / 2 : second ? e - pairs : e;
      const float other = normed(second ? e - step : e + step);
      const float cos = turns[pair], sin = turns[64 + pair];
      x = second ? other * sin + x * cos : x * cos - other * sin;
    }
    put(e, x);
  }
}

// Element e of O', with m and l, of head g, from `count` parts [group, D + 4] that lie `stride`
// floats apart.
struct MergedParts {
  float o = 0;
  float max = -INFINITY;
  float sum = 0;

  template <int kD>
  __device__ static MergedParts of(const float* parts, int stride, int count, int g, int e) {
    const float* first = parts + g * (kD + 4);
    MergedParts m;
    for (int i = 0; i < count; ++i) m.max = fmaxf(m.max, first[i * stride + kD]);
    const float base = m.max == -INFINITY ? 0.f : m.max;
    for (int i = 0; i < count; ++i) {
      const float weight = ptx::exp2_approx(first[i * stride + kD] - base);
      m.o += weight * first[i * stride + e];
      m.sum += weight * first[i * stride + kD + 1];
    }
    return m;
  }
};

// Stores element e of a CTA's part of head g, and with the first element m and l.
template <int kD>
__device__ inline void put_merged(float* part, int g, int e, const MergedParts& m) {
  float* row = part + g * (kD + 4);
  row[e] = m.o;
  if (e > 0) return;
  row[kD] = m.max;
  row[kD + 1] = m.sum;
}

// The i-th pair of a KV head's result, from parts of all CTAs.
template <int kD>
__device__ inline uint32_t attended_pair(const float* parts, int stride, int count, int i) {
  const int g = 2 * i / kD, e = 2 * i % kD;
  const MergedParts low = MergedParts::of<kD>(parts, stride, count, g, e);
  const MergedParts high = MergedParts::of<kD>(parts, stride, count, g, e + 1);
  const float scale = low.sum > 0 ? 1 / low.sum : 0;
  return ptx::pack<__nv_bfloat16>(low.o * scale, high.o * scale);
}

}  // namespace braid::cuda
