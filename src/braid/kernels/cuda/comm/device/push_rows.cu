#include "braid/kernels/cuda/comm/device/push_rows.h"

#include "braid/kernels/cuda/comm/device/wait.cuh"

namespace braid::cuda {
namespace {

constexpr int kUnroll = 8;  // words in flight for each thread

__device__ void copy(const RowsPiece& piece, uint32_t first, uint32_t threads) {
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

// What a CTA copies: every step-th piece from `first` on, of which it is the CTA `cta` of `ctas`.
struct Share {
  int first, step;
  uint32_t cta, ctas;
};

__device__ Share share_of_cta(int pieces) {
  const auto all = gridDim.x;
  const bool by_piece = static_cast<int>(all) <= pieces;
  return by_piece ? Share{static_cast<int>(blockIdx.x), static_cast<int>(all), 0, 1}
                  : Share{0, 1, blockIdx.x, all};
}

// A CTA counts itself as done after its stores reach the peers; the last CTA completes the push.
__global__ __launch_bounds__(kPushThreads) void push_rows_kernel(
    const __grid_constant__ CommView view, const __grid_constant__ PushRowsParams p) {
  if (p.early) ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  if (!is_aborted(view)) {
    const Share share = share_of_cta(p.num_pieces);
    for (int i = share.first; i < p.num_pieces; i += share.step) {
      copy(p.pieces[i], share.cta * kPushThreads + threadIdx.x, share.ctas * kPushThreads);
    }
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x > 0 || atomicAdd(p.ended, 1u) + 1 < gridDim.x) return;
  *p.ended = 0;
  if (is_aborted(view)) return;  // maybe before another CTA copied
  __threadfence_system();
  for (int i = 0; i < p.num_peers; ++i) atomicAdd_system(p.arrivals[i], 1u);
}

}  // namespace

PushRowsKernel push_rows_kernel_of() {
  return push_rows_kernel;
}

}  // namespace braid::cuda
