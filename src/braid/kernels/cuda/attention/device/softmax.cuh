#pragma once

#include "braid/kernels/cuda/attention/plan.h"
#include "braid/kernels/cuda/ptx/mma.h"

// Online softmax over scores in wgmma's and mma.sync's accumulator layout: element 4 j + 2 r + c of
// a thread is row r, column 8 j + 2 (lane % 4) + c.
namespace braid::cuda {

struct RowStats {
  float max[2];  // of the raw scores; equal in a row's four lanes
  float sum[2];  // this lane's sum of e^(scale (s - max))

  __device__ void clear() {
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0.f;
  }
  __device__ void take(const float (&m)[2], const float (&l)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      max[r] = m[r];
      sum[r] = l[r];
    }
  }
};

// The largest score of each row, in all lanes of the row. As integers, positive floats keep their
// order and every negative float is less: a three-input integer maximum is right unless negative.
// Only rows with a negative maximum are gone through again.
template <int kCount>
__device__ __forceinline__ void row_maxima(const float (&s)[kCount], float (&m)[2]) {
  int top[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) top[i] = __float_as_int(s[i]);
    // Element i joins chain i % 4; of each chain, two at a time.
#pragma unroll
  for (int i = 4; i + 8 <= kCount; i += 8) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      top[c] = __vimax3_s32(top[c], __float_as_int(s[i + c]), __float_as_int(s[i + 4 + c]));
    }
  }
#pragma unroll
  for (int i = kCount - (kCount - 4) % 8; i < kCount; ++i) {
    top[i % 4] = max(top[i % 4], __float_as_int(s[i]));
  }
  int row[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    row[r] = max(top[2 * r], top[2 * r + 1]);
    row[r] = max(row[r], __shfl_xor_sync(0xffffffff, row[r], 1));
    row[r] = max(row[r], __shfl_xor_sync(0xffffffff, row[r], 2));
    m[r] = __int_as_float(row[r]);
  }
  if (__any_sync(0xffffffff, (row[0] | row[1]) < 0)) {
    float part[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) part[i] = s[i];
#pragma unroll
    for (int i = 4; i < kCount; ++i) part[i % 4] = fmaxf(part[i % 4], s[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m[r] = fmaxf(part[2 * r], part[2 * r + 1]);
      m[r] = fmaxf(m[r], __shfl_xor_sync(0xffffffff, m[r], 1));
      m[r] = fmaxf(m[r], __shfl_xor_sync(0xffffffff, m[r], 2));
    }
  }
}

// Scores -> e^(scale (s - max)), in place, and the rows' sums (if kSum); `alpha` is what the sums
// before this tile shrink by.
template <bool kSum, int kCount>
__device__ __forceinline__ void online_softmax(float (&s)[kCount], RowStats& stats,
                                               float scale_log2, float (&alpha)[2]) {
  float m[2];
  row_maxima(s, m);
  float base[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool rises = m[r] > stats.max[r];
    alpha[r] = rises ? ptx::exp2_approx((stats.max[r] - m[r]) * scale_log2) : 1.f;
    stats.max[r] = rises ? m[r] : stats.max[r];
    base[r] = stats.max[r] == -INFINITY ? 0.f : stats.max[r] * scale_log2;
  }
  float part[4] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s[i] = ptx::exp2_approx(fmaf(s[i], scale_log2, -base[i / 2 % 2]));
    if constexpr (kSum) part[i % 4] += s[i];
  }
  if constexpr (kSum) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      stats.sum[r] = fmaf(stats.sum[r], alpha[r], part[2 * r] + part[2 * r + 1]);
    }
  }
}

// Factors for rows' earlier sums. Maxima settle after some tiles, so each half is skipped unless
// one of the warp's eight rows in the half has a new maximum.
template <int kCount>
__device__ __forceinline__ void rescale(float (&o)[kCount], const float (&alpha)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (__any_sync(0xffffffff, alpha[r] != 1.f)) {
#pragma unroll
      for (int i = 2 * r; i < kCount; i += 4) {
        o[i] *= alpha[r];
        o[i + 1] *= alpha[r];
      }
    }
  }
}

// Sets scores of hidden keys to -inf: row r sees columns [low[r], high[r]).
template <int kCount>
__device__ inline void mask_scores(float (&s)[kCount], const int (&low)[2], const int (&high)[2],
                                   int lane) {
  const int column = 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int c = 8 * (i / 4) + i % 2;
    const int r = i / 2 % 2;
    if (c >= high[r] - column || c < low[r] - column) s[i] = -INFINITY;
  }
}

// The columns of a tile visible to a row; `key_position` is the position of column 0, `valid` the
// segment's keys from column 0 on.
__device__ inline void visible(const AttentionPlan& plan, int query_position, int key_position,
                               int valid, int& low, int& high) {
  low = query_position - plan.window_left - key_position;
  high = min(valid, query_position + plan.window_right + 1 - key_position);
}

template <class T, int kCount>
__device__ inline void pack_scores(const float (&s)[kCount], uint32_t (&p)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) p[i] = ptx::pack<T>(s[2 * i], s[2 * i + 1]);
}

}  // namespace braid::cuda
