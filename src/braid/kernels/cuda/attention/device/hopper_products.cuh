#pragma once

#include "braid/kernels/cuda/attention/device/hopper_smem.cuh"
#include "braid/kernels/cuda/ptx/wgmma.h"

// Both products in attention, for a warpgroup's 64 rows and a tile of keys.
namespace braid::cuda {

// s = q k^T for 64 rows, asynchronously.
template <class Traits>
__device__ __forceinline__ void issue_scores(float (&s)[Traits::kBlockN / 2], uint32_t q,
                                             uint32_t k) {
  ptx::wgmma_fence();
#pragma unroll
  for (int kk = 0; kk < Traits::kDqk / 16; ++kk) {
    const int q_at = kk / 4 * Traits::kQChunkBytes + kk % 4 * 32;
    const int k_at = kk / 4 * Traits::kKvChunkBytes + kk % 4 * 32;
    ptx::Wgmma<typename Traits::T, Traits::kBlockN>::ss(s, q + q_at / 16, k + k_at / 16, kk > 0);
  }
  ptx::wgmma_commit();
}

// The same with the queries in registers.
template <class Traits>
__device__ __forceinline__ void issue_scores_rk(float (&s)[Traits::kBlockN / 2],
                                                const uint32_t (&q)[Traits::kDqk / 4], uint32_t k) {
  ptx::wgmma_fence();
#pragma unroll
  for (int kk = 0; kk < Traits::kDqk / 16; ++kk) {
    const int k_at = kk / 4 * Traits::kKvChunkBytes + kk % 4 * 32;
    ptx::Wgmma<typename Traits::T, Traits::kBlockN>::rk(s, q + 4 * kk, k + k_at / 16, kk > 0);
  }
  ptx::wgmma_commit();
}

// o += p v, asynchronously. `v_step` advances the descriptor by 16 keys.
template <class Traits>
__device__ __forceinline__ void issue_values(float (&o)[Traits::kOutN / 2],
                                             const uint32_t (&p)[Traits::kBlockN / 4], uint32_t v,
                                             uint32_t v_step) {
  ptx::wgmma_fence();
#pragma unroll
  for (int kk = 0; kk < Traits::kBlockN / 16; ++kk) {
    ptx::Wgmma<typename Traits::T, Traits::kOutN>::rs(o, p + 4 * kk, v + kk * v_step, 1);
  }
  ptx::wgmma_commit();
}

}  // namespace braid::cuda
