#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "braid/kernels/cuda/comm/device/across_kernels.h"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

__device__ int64_t live_rows(const AcrossParams& p) {
  return p.live ? min(*p.live, p.rows) : p.rows;
}

// Called by all threads in a row of the grid.
__device__ void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const auto both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  const int64_t units = both % 16 == 0 ? bytes / 16 : 0;
  for (int64_t u = first; u < units; u += step) {
    reinterpret_cast<uint4*>(to)[u] = reinterpret_cast<const uint4*>(from)[u];
  }
  for (int64_t b = units * 16 + first; b < bytes; b += step) to[b] = from[b];
}

__global__ void pack_kernel(const __grid_constant__ AcrossParams p) {
  ptx::grid_dependency_wait();
  const int64_t rows = live_rows(p);
  if (p.columns) {
    copy_bytes(p.send, p.x, rows * p.part_bytes[p.rank]);
  } else if (p.op == CollectiveOp::all_reduce) {
    copy_bytes(p.send, p.x, rows * p.row_bytes);
  } else if (p.op == CollectiveOp::all_gather) {
    const RowRange mine = even_rows(rows, p.ranks, p.rank);
    copy_bytes(p.send, p.x, (mine.end - mine.begin) * p.row_bytes);
  } else {
    for (int q = 0; q < p.ranks; ++q) {
      if (q == p.rank) continue;
      const RowRange part = even_rows(rows, p.ranks, q);
      copy_bytes(p.send + q * p.slot, p.x + part.begin * p.row_bytes,
                 (part.end - part.begin) * p.row_bytes);
    }
  }
}

__global__ void push_kernel(const __grid_constant__ PushParams p) {
  ptx::grid_dependency_wait();
  copy_bytes(p.to[blockIdx.y], p.from[blockIdx.y], p.bytes[blockIdx.y]);
}

__global__ void place_kernel(const __grid_constant__ AcrossParams p) {
  ptx::grid_dependency_wait();
  const int64_t rows = live_rows(p);
  for (int q = 0; q < p.ranks; ++q) {
    const std::byte* const from = q == p.rank ? p.x : p.received + q * p.slot;
    if (p.columns) {
      for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
        for (int64_t b = threadIdx.x; b < p.part_bytes[q]; b += blockDim.x) {
          p.y[t * p.row_bytes + p.begin_bytes[q] + b] = from[t * p.part_bytes[q] + b];
        }
      }
      continue;
    }
    const Piece piece =
        piece_of(p.op == CollectiveOp::all_to_all, rows, p.row_bytes, p.ranks, q, p.rank);
    const std::byte* const own = from + (q == p.rank ? piece.src : 0);
    if (own != p.y + piece.dst) copy_bytes(p.y + piece.dst, own, piece.bytes);
  }
}

template <class T>
__global__ void sum_kernel(const __grid_constant__ AcrossParams p) {
  ptx::grid_dependency_wait();
  const int64_t rows = live_rows(p);
  const bool scatter = p.op == CollectiveOp::reduce_scatter;
  const RowRange part = scatter ? even_rows(rows, p.ranks, p.rank) : RowRange{0, rows};
  const int64_t cols = p.row_bytes / static_cast<int64_t>(sizeof(T));
  const int64_t n = (part.end - part.begin) * cols;
  const T* const x = reinterpret_cast<const T*>(p.x) + part.begin * cols;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    float sum = 0;
    for (int q = 0; q < p.ranks; ++q) {
      const float v = static_cast<float>(
          q == p.rank ? x[i] : reinterpret_cast<const T*>(p.received + q * p.slot)[i]);
      sum = q == 0 ? v : sum + v;
    }
    reinterpret_cast<T*>(p.y)[i] = static_cast<T>(sum);
  }
}

}  // namespace

AcrossKernel pack_kernel_of() {
  return pack_kernel;
}
PushKernel push_kernel_of() {
  return push_kernel;
}
AcrossKernel place_kernel_of() {
  return place_kernel;
}
AcrossKernel sum_kernel_of(DType dtype) {
  return dtype == DType::f32   ? sum_kernel<float>
         : dtype == DType::f16 ? sum_kernel<__half>
                               : sum_kernel<__nv_bfloat16>;
}

}  // namespace braid::cuda
