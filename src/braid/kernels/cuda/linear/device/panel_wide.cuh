#pragma once

#include <cuda_bf16.h>

#include "braid/kernels/cuda/linear/device/panel_finish.cuh"
#include "braid/kernels/cuda/ptx/load.h"
#include "braid/kernels/cuda/ptx/wgmma.h"

namespace braid::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Chunks of 64 rows for a warpgroup: in a gated pair a warpgroup has the gates and the other has
// the partners; otherwise warpgroups take turns. Rows past a panel's end are multiplied, too, and
// dropped.
struct PanelChunks {
  static constexpr int kMost = kPanelMaxGroups * 16 / 64 / 2;
  static_assert(kPanelMaxTokens >= 64);  // x lies behind a stage's rows: reads stay valid
  int count;
  uint32_t first, next;  // bytes into a stage's slab, and from chunk to chunk

  __device__ PanelChunks(const PanelArgs& a, const PanelWork& work, int warpgroup) {
    constexpr int kChunk = 64 * 128;
    const PanelLayout layout(a, 128, true);
    const int rows = work.count * (a.p.gated ? 8 : 16) - (a.p.gated ? 0 : 64 * warpgroup);
    const int step = a.p.gated ? 64 : 128;
    count = rows > 0 ? (rows + step - 1) / step : 0;
    first = warpgroup * (a.p.gated ? layout.half_bytes : kChunk);
    next = a.p.gated ? kChunk : 2 * kChunk;
    ptx::keep(first);
    ptx::keep(next);
  }
};

// acc[a chunk's 64 rows, tokens] += the stages of K, for a warpgroup with kChunks chunks.
template <int kTokens, int kChunks>
__device__ inline void panel_consume_wide(const PanelArgs& a, const PanelWork& work,
                                          const PanelChunks& chunks, uint8_t* smem,
                                          const PanelRing& ring,
                                          float (&acc)[PanelChunks::kMost][kTokens / 2]) {
  using Product = ptx::Wgmma<__nv_bfloat16, kTokens>;
  constexpr uint32_t kStep = 16 * sizeof(__nv_bfloat16) / 16;  // descriptor step for a k of 16
  const PanelLayout layout(a, 128, true);
  const uint32_t begin = ptx::wgmma_descriptor(smem, 0);
  const bool arrives = (threadIdx.x & 31) == 0;
  int stage = 0, last = 0;
  uint32_t parity = 0, at = begin;
  // Earlier, the next launch's weights would only delay this one's.
  const int trigger = work.k_count - a.config.trigger;
  if (trigger <= 0) ptx::grid_launch_dependents();
  for (int i = 0; i < work.k_count; ++i) {
    if (i == trigger) ptx::grid_launch_dependents();
    ptx::mbarrier_wait(&ring.full[stage], parity);
    if constexpr (kChunks > 0) {
      uint32_t w = at + chunks.first / 16, x = at + a.smem.x / 16;
      ptx::wgmma_fence();
      for (int slab = 0; slab < a.config.slabs; ++slab) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
          for (int c = 0; c < kChunks; ++c) {
            Product::ss(acc[c], w + c * (chunks.next / 16) + k * kStep, x + k * kStep, 1);
          }
        }
        w += layout.slab_bytes / 16;
        x += kTokens * 128 / 16;
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();  // the stage before is multiplied
    }
    if (arrives && i > 0) ptx::mbarrier_arrive(&ring.empty[last]);
    last = stage;
    at += a.smem.stage / 16;
    if (++stage == a.config.stages) stage = 0, parity ^= 1, at = begin;
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int c = 0; c < PanelChunks::kMost; ++c) ptx::wgmma_pin(acc[c]);
}
#endif

// As panel_kernel, for up to kTokens tokens, by the products of warpgroups.
template <int kTokens>
__global__ void __launch_bounds__(kPanelThreads, 2)
    panel_wide_kernel(const __grid_constant__ PanelArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t smem[];
  const PanelRing ring(a, smem);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
  const int warpgroup = __shfl_sync(0xffffffffu, warp / 4, 0);
  const PanelWork work(a);
  const bool fetches = threadIdx.x == kPanelConsumers;
  PanelFetch<DType::bf16> fetch(a, work, smem, ring);
  if (fetches) fetch.begin();
  __syncthreads();  // all see the ring's barriers
  const PanelChunks chunks(a, work, warpgroup);
  float acc[PanelChunks::kMost][kTokens / 2] = {};
  if (fetches) fetch.run();
  __syncwarp();
  ptx::grid_dependency_wait();
  const int live = a.p.rows ? static_cast<int>(ptx::load_in_place(a.p.rows)) : a.p.m;
  if (warp < kPanelWarps) {
    if (chunks.count > 1) {
      panel_consume_wide<kTokens, 2>(a, work, chunks, smem, ring, acc);
    } else if (chunks.count > 0) {
      panel_consume_wide<kTokens, 1>(a, work, chunks, smem, ring, acc);
    } else {
      panel_consume_wide<kTokens, 0>(a, work, chunks, smem, ring, acc);
    }
  }
  __syncthreads();  // nobody reads the ring any more

  auto* sums = reinterpret_cast<float*>(smem);
  if (warp < kPanelWarps) {
    const int quarter = warp & 3, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int c = 0; c < PanelChunks::kMost; ++c) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int group = 8 * c + (a.p.gated ? 2 * quarter + r : 4 * warpgroup + quarter);
        if (group >= work.count) continue;
        float* to = sums + group * 16 + 8 * (a.p.gated ? warpgroup : r) + g;
#pragma unroll
        for (int j = 0; j < kTokens / 8; ++j) {
          to[(8 * j + 2 * t) * a.smem.pitch] = acc[c][4 * j + 2 * r];
          to[(8 * j + 2 * t + 1) * a.smem.pitch] = acc[c][4 * j + 2 * r + 1];
        }
      }
    }
  }
  panel_finish(a, work, sums, live);
#endif
}

}  // namespace braid::cuda
