#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_ring.cuh"
#include "braid/kernels/cuda/relay/device/worker.cuh"

// A KV head whose keys are divided over several clusters (FusedArgs::parts): each CTA makes some
// rows of the head's q, k and v and needs all rows; each cluster has O', m and l of a part of the
// keys, and all parts make the result. Both go as tagged words through memory.
namespace braid::cuda {

__device__ inline uint2* row_words(const FusedArgs& a, int head_dim, int head, int token) {
  return a.row_words + (head * a.tokens + token) * (a.group + 2) * head_dim;
}
__device__ inline uint2* part_words(const FusedArgs& a, int head_dim, int head, int part,
                                    int token) {
  return a.part_words + ((head * a.parts + part) * a.tokens + token) * a.group * (head_dim + 4);
}

// Passes on row `row` of a head's q, k and v.
__device__ inline void put_row(const FusedArgs& a, int head_dim, int head, int token, int row,
                               __nv_bfloat16 x, uint32_t tag) {
  ptx::store_relaxed_gpu(row_words(a, head_dim, head, token) + row,
                         make_uint2(__bfloat16_as_ushort(x), tag));
}

// All rows of `n` tokens to bf16 `to` [n, (G + 2) * D], by a CTA's multiplying threads.
__device__ inline void load_rows(const FusedArgs& a, int head_dim, int head, int token, int n,
                                 uint8_t* to, uint32_t tag) {
  constexpr int kTogether = 4;
  const auto* from = reinterpret_cast<const uint4*>(row_words(a, head_dim, head, token));
  const int last = n * (a.group + 2) * head_dim / 2 - 1;
  const int thread = threadIdx.x;
#pragma unroll 1
  for (int first = thread; first <= last; first += kTogether * kFusedThreads) {
    const auto place = [&](int j) { return min(first + j * kFusedThreads, last); };
    uint4 v[kTogether];
    wait_words(v, tag, [&](int j) { return from + place(j); });
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      reinterpret_cast<uint32_t*>(to)[place(j)] = v[j].x | v[j].z << 16;
    }
  }
}

// Passes on this CTA's share of O', m and l of its cluster's keys, for `heads` query heads of a
// token from `first` on, out of all CTAs' `pieces` [heads, D + 4], `stride` floats apart.
template <int kD>
__device__ inline void put_part_of_head(const FusedArgs& a, const FusedPlace& at, int token,
                                        int first, int heads, const float* pieces, int stride,
                                        uint32_t tag) {
  uint2* to = part_words(a, kD, at.head, at.part, token) + first * (kD + 4);
  const Shares shares(heads * kD, a.cluster);
  const int end = shares.end(at.rank), thread = threadIdx.x;
  for (int i = shares.begin(at.rank) + thread; i < end; i += kFusedThreads) {
    const int g = i / kD, e = i % kD;
    const MergedParts m = MergedParts::of<kD>(pieces, stride, a.cluster, g, e);
    const auto put = [&](int word, float x) {
      ptx::store_relaxed_gpu(to + g * (kD + 4) + word, make_uint2(__float_as_uint(x), tag));
    };
    put(e, m.o);
    if (e == 0) put(kD, m.max), put(kD + 1, m.sum);
  }
}

// Stores this CTA's share of a head's result, from the parts of all clusters in their order.
template <int kD>
__device__ inline void put_head(const FusedArgs& a, const FusedPlace& at, int tokens,
                                uint32_t tag) {
  constexpr int kTogether = 4;  // parts
  const int pairs = a.group * kD / 2;
  const Shares shares(tokens * pairs, at.members);
  const int end = shares.end(at.member), thread = threadIdx.x;
#pragma unroll 1
  for (int i = shares.begin(at.member) + thread; i < end; i += kFusedThreads) {
    const int token = i / pairs, its = i % pairs, g = 2 * its / kD, e = 2 * its % kD;
    float low = 0, high = 0, sum = 0, max = -INFINITY;
#pragma unroll 1
    for (int part = 0; part < a.parts; part += kTogether) {
      uint4 v[2 * kTogether];  // pairs of O', each with m and l
      wait_words(v, tag, [&](int j) {
        const int from = min(part + j / 2, a.parts - 1);
        const uint2* words = part_words(a, kD, at.head, from, token) + g * (kD + 4);
        return reinterpret_cast<const uint4*>(words + (j % 2 == 0 ? e : kD));
      });
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (part + j >= a.parts) break;
        const float its_max = __uint_as_float(v[2 * j + 1].x);
        const float top = fmaxf(max, its_max), base = top == -INFINITY ? 0.f : top;
        const float keep = ptx::exp2_approx(max - base), weight = ptx::exp2_approx(its_max - base);
        low = low * keep + weight * __uint_as_float(v[2 * j].x);
        high = high * keep + weight * __uint_as_float(v[2 * j].z);
        sum = sum * keep + weight * __uint_as_float(v[2 * j + 1].z);
        max = top;
      }
    }
    const float scale = sum > 0 ? 1 / sum : 0;
    put_pair(a, (token * a.kv_heads + at.head) * pairs + its,
             ptx::pack<__nv_bfloat16>(low * scale, high * scale), tag);
  }
}

}  // namespace braid::cuda
