#pragma once

#include "braid/kernels/cuda/attention/device/epilogue.cuh"
#include "braid/kernels/cuda/attention/device/hopper_launch.h"
#include "braid/kernels/cuda/attention/device/hopper_smem.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/cluster.h"

// A split item: each CTA of a cluster attends to a part of the keys; the parts merge in a fixed
// order, and each CTA writes a share of the rows.
namespace braid::cuda {

// Stores this CTA's part in place of keys and values. `l` is this thread's part of the row sums, m2
// the maxima in log2 units.
template <class Traits>
__device__ __forceinline__ void put_part(HopperSmem<Traits>& smem, int warp, int lane,
                                         float (&o)[Traits::kOutN / 2], float (&l)[2],
                                         float (&m2)[2]) {
  if constexpr (Traits::kSplit) {
    ptx::named_barrier_sync(1, 128);  // all warps have multiplied
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l[r] += __shfl_xor_sync(0xffffffff, l[r], 1);
      l[r] += __shfl_xor_sync(0xffffffff, l[r], 2);
      const int row = warp * 16 + lane / 4 + 8 * r;
      if (lane % 4 == 0) smem.part_stats()[row] = make_float2(m2[r], l[r]);
      float* to = smem.part() + row * HopperSmem<Traits>::kPartRow + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < Traits::kDv / 8; ++j) {
        *reinterpret_cast<float2*>(to + 8 * j) =
            make_float2(o[4 * j + 2 * r], o[4 * j + 2 * r + 1]);
      }
    }
  }
}

// With all CTAs' parts present, this CTA merges a share of the rows.
template <class Traits>
__device__ __forceinline__ void merge_parts(const AttentionPlan& plan, HopperSmem<Traits>& smem,
                                            const ItemPlace& item) {
  constexpr int kColumns = 8;  // per thread
  constexpr int kPerRow = Traits::kDv / kColumns;
  constexpr int kRows = 128 / kPerRow;
  const int size = static_cast<int>(ptx::cluster_size());
  const int rank = static_cast<int>(ptx::cluster_rank());
  const int first = 64 * rank / size;
  const int end = 64 * (rank + 1) / size;
  const int thread = threadIdx.x % 128;
  // A thread per row: each part's weight, and the row's sum.
  if (first + thread < end) {
    const int row = first + thread;
    float2 stat[kMaxSplit];  // m (in units of log2), l
    float m2 = -INFINITY;
#pragma unroll
    for (int i = 0; i < kMaxSplit; ++i) {
      stat[i] = make_float2(-INFINITY, 0.f);
      if (i < size)
        stat[i] = ptx::load_cluster_f32x2(ptx::cluster_address(smem.part_stats() + row, i));
      m2 = fmaxf(m2, stat[i].x);
    }
    float l = 0.f;
#pragma unroll
    for (int i = 0; i < kMaxSplit; ++i) {
      const float weight = stat[i].x == -INFINITY ? 0.f : ptx::exp2_approx(stat[i].x - m2);
      smem.part_weights()[row][i] = weight;
      l += weight * stat[i].y;
    }
    smem.part_total()[row] = make_float2(m2, l);
  }
  ptx::named_barrier_sync(1, 128);
  if (thread >= kRows * kPerRow) return;
  const int column = thread % kPerRow * kColumns;
#pragma unroll 2
  for (int row = first + thread / kPerRow; row < end; row += kRows) {
    float o[kColumns] = {};
#pragma unroll
    for (int i = 0; i < kMaxSplit; ++i) {
      if (i >= size) break;
      const float weight = smem.part_weights()[row][i];
      const uint32_t from =
          ptx::cluster_address(smem.part() + row * HopperSmem<Traits>::kPartRow + column, i);
#pragma unroll
      for (int c = 0; c < kColumns; c += 4) {
        const float4 x = ptx::load_cluster_f32x4(from + 4 * c);
        o[c] += weight * x.x;
        o[c + 1] += weight * x.y;
        o[c + 2] += weight * x.z;
        o[c + 3] += weight * x.w;
      }
    }
    const float2 total = smem.part_total()[row];
    write_piece<typename Traits::T>(plan, item.unit, item.b, item.head, row, column, o, total.y,
                                    total.x);
  }
}

}  // namespace braid::cuda
