#include <cuda_bf16.h>

#include "backend/cuda/comm/graph_kernels.h"
#include "braid/backend/cuda/check.h"

namespace braid::cuda::test {
namespace {

__device__ int value_on_device(long long i, int rank, long long step, int ranks) {
  return static_cast<int>((i * 7 + rank * 13 + step * 3 + i / 251) % (256 / ranks));
}
__device__ void part_of(long long n, int parts, int index, long long* begin, long long* end) {
  const long long base = n / parts;
  const long long extra = n % parts;
  *begin = index * base + (index < extra ? index : extra);
  *end = *begin + base + (index < extra ? 1 : 0);
}

__global__ void advance_kernel(int64_t* step) {
  ++*step;
}

__global__ void fill_kernel(const int64_t* step, void* x, bool bf16, int64_t n, int rank,
                            int ranks) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const float v = value_on_device(i, rank, *step, ranks);
    if (bf16) {
      static_cast<__nv_bfloat16*>(x)[i] = __float2bfloat16_rn(v);
    } else {
      static_cast<float*>(x)[i] = v;
    }
  }
}

__global__ void check_kernel(CollectiveOp op, const int64_t* step, const void* y, bool bf16,
                             int64_t rows, int64_t cols, int rank, int ranks,
                             unsigned long long* wrong) {
  long long begin = 0;
  long long end = rows;
  if (op == CollectiveOp::reduce_scatter) part_of(rows, ranks, rank, &begin, &end);
  const int64_t n = (end - begin) * cols;
  unsigned long long bad = 0;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int expected = 0;
    if (op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter) {
      for (int p = 0; p < ranks; ++p) {
        expected += value_on_device(begin * cols + i, p, *step, ranks);
      }
    } else if (op == CollectiveOp::all_gather) {
      for (int p = 0; p < ranks; ++p) {
        long long b, e;
        part_of(rows, ranks, p, &b, &e);
        if (b * cols <= i && i < e * cols)
          expected = value_on_device(i - b * cols, p, *step, ranks);
      }
    } else {
      const int64_t block = rows / ranks * cols;
      expected =
          value_on_device(rank * block + i % block, static_cast<int>(i / block), *step, ranks);
    }
    const float seen = bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(y)[i])
                            : static_cast<const float*>(y)[i];
    bad += seen != static_cast<float>(expected);
  }
  if (bad) atomicAdd(wrong, bad);
}

}  // namespace

void launch_fill(int64_t* step, void* x, bool bf16, int64_t n, int rank, int ranks,
                 cudaStream_t stream) {
  advance_kernel<<<1, 1, 0, stream>>>(step);
  fill_kernel<<<16, 256, 0, stream>>>(step, x, bf16, n, rank, ranks);
  check_cuda(cudaGetLastError(), "fill");
}

void launch_check(CollectiveOp op, const int64_t* step, const void* y, bool bf16, int64_t rows,
                  int64_t cols, int rank, int ranks, unsigned long long* wrong,
                  cudaStream_t stream) {
  check_kernel<<<16, 256, 0, stream>>>(op, step, y, bf16, rows, cols, rank, ranks, wrong);
  check_cuda(cudaGetLastError(), "check");
}

void load_graph_kernels() {
  cudaFuncAttributes a;
  check_cuda(cudaFuncGetAttributes(&a, advance_kernel), "load");
  check_cuda(cudaFuncGetAttributes(&a, fill_kernel), "load");
  check_cuda(cudaFuncGetAttributes(&a, check_kernel), "load");
}

}  // namespace braid::cuda::test
