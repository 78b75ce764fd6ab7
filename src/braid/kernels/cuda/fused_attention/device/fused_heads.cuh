#pragma once

#include "braid/kernels/cuda/cluster/device/exchange.cuh"
#include "braid/kernels/cuda/fused_attention/device/fused_args.h"
#include "braid/kernels/cuda/fused_attention/fused_config.h"
#include "braid/kernels/cuda/ptx/gpu.h"
#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/relay/device/turn_head.cuh"

// Shared by blocks with a single token and with several: heads on their way from products to
// attention, and attention's parts on their way to a sum.
namespace braid::cuda {

// Place of a row in a KV head's q, k and v: its weight (0 to 2) and its row in that weight.
struct FusedHeadRow {
  int which;
  int row;
  __device__ FusedHeadRow(int head, int in_head, int of_q, int head_dim) {
    which = in_head < of_q ? 0 : in_head < of_q + head_dim ? 1 : 2;
    row = which == 0 ? head * of_q + in_head
                     : head * head_dim + in_head - of_q - (which - 1) * head_dim;
  }
};

// The i-th quad of a + b.
__device__ __forceinline__ float4 load_sum(const FusedArgs& a, int i) {
  float4 s = __ldcg(reinterpret_cast<const float4*>(a.a) + i);
  if (a.b != nullptr) {
    const uint2 b = __ldcg(reinterpret_cast<const uint2*>(a.b) + i);
    s.x += ptx::low_half(b.x), s.y += ptx::high_half(b.x);
    s.z += ptx::low_half(b.y), s.w += ptx::high_half(b.y);
  }
  return s;
}

// The norm's scale, from all warps' sums of squares.
__device__ inline float norm_scale(const FusedArgs& a, const float* squares) {
  float all = 0;
#pragma unroll
  for (int w = 0; w < kFusedWarps; ++w) all += squares[w];
  return rsqrtf(all / static_cast<float>(a.width) + a.eps);
}

// Element e in head g's O', with m and l, from `count` parts [group, D + 4], `stride` floats
// apart.
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

// Stores element e in a CTA's part of head g, and with the first element m and l.
template <int kD>
__device__ inline void put_merged(float* part, int g, int e, const MergedParts& m) {
  float* row = part + g * (kD + 4);
  row[e] = m.o;
  if (e > 0) return;
  row[kD] = m.max;
  row[kD + 1] = m.sum;
}

// Pair i of a KV head's result, from all CTAs' parts.
template <int kD>
__device__ inline uint32_t attended_pair(const float* parts, int stride, int count, int i) {
  const int g = 2 * i / kD, e = 2 * i % kD;
  const MergedParts low = MergedParts::of<kD>(parts, stride, count, g, e);
  const MergedParts high = MergedParts::of<kD>(parts, stride, count, g, e + 1);
  const float scale = low.sum > 0 ? 1 / low.sum : 0;
  return ptx::pack<__nv_bfloat16>(low.o * scale, high.o * scale);
}

// Stores a pair of attention's result: the block's output, or a word for the projection.
__device__ inline void put_pair(const FusedArgs& a, int at, uint32_t pair, uint32_t tag) {
  if (a.outputs == 0) {
    reinterpret_cast<uint32_t*>(a.out)[at] = pair;
  } else {
    ptx::store_relaxed_gpu(a.words + at, make_uint2(pair, tag));
  }
}

// Exchanges by a CTA's multiplying threads, through inboxes with `bytes` at `inbox`.
template <ExchangePath kPath>
__device__ __forceinline__ ClusterExchange<kPath> block_exchange(const FusedArgs& a, uint8_t* inbox,
                                                                 int bytes, uint8_t* arrivals,
                                                                 uint32_t tag) {
  uint4* mail = a.mail == nullptr ? nullptr : a.mail + blockIdx.x / a.cluster * (a.mail_bytes / 16);
  return {{inbox, bytes, reinterpret_cast<uint64_t*>(arrivals), mail, tag},
          {static_cast<int>(threadIdx.x), kFusedThreads, 1},
          static_cast<int>(blockIdx.x) % a.cluster,
          a.cluster};
}

}  // namespace braid::cuda
