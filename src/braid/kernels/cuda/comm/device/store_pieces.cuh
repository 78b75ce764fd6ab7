#pragma once

#include "braid/kernels/cuda/comm/device/push_rows.h"
#include "braid/kernels/cuda/comm/device/wait.cuh"

// Parts of kernels that store rows at peers.
namespace braid::cuda {

// The threads of a piece are `first`, `first` + 1, ... of `threads`.
__device__ inline void store_piece(const RowsPiece& piece, uint32_t first, uint32_t threads) {
  constexpr int kUnroll = 8;  // words in flight for each thread
  const uint32_t width = piece.row_words, words = width * piece.rows;
  for (uint32_t i = first; i < words; i += kUnroll * threads) {
    uint4 data[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint32_t j = i + u * threads;
      if (j < words) data[u] = piece.src[j / width * piece.src_stride + j % width];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint32_t j = i + u * threads;
      if (j < words) piece.dst[j / width * piece.dst_stride + j % width] = data[u];
    }
  }
}

// A CTA counts itself as done after its stores reach the peers; the last CTA completes the push.
__device__ inline void end_stores(const CommView& view, const PushRowsParams& p) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x > 0 || atomicAdd(p.ended, 1u) + 1 < gridDim.x) return;
  *p.ended = 0;
  if (is_aborted(view)) return;  // maybe before another CTA copied
  __threadfence_system();
  for (int i = 0; i < p.num_peers; ++i) atomicAdd_system(p.arrivals[i], 1u);
}

}  // namespace braid::cuda
