#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "braid/base/error.h"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/sampling/device/random_fill.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // pairs of a thread

// The finalizer of SplitMix64, over a counter.
__device__ inline uint64_t mixed(uint64_t seed, uint64_t index) {
  uint64_t z = seed + index * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

// Box-Muller: the numbers of indices 2 pair and 2 pair + 1.
__device__ inline float2 normals(uint64_t seed, uint64_t pair) {
  const uint64_t bits = mixed(seed, pair + 1);
  const float u = (static_cast<float>(static_cast<uint32_t>(bits >> 40)) + 1.f) * 0x1p-24f;
  const float angle = static_cast<float>(static_cast<uint32_t>(bits) & 0xffffffu) * 0x1p-23f;
  float2 x;  // u is in (0, 1], the angle in [0, 2), times pi
  sincospif(angle, &x.y, &x.x);
  const float r = sqrtf(-2.f * logf(u));
  return {r * x.x, r * x.y};
}

template <class T>
__global__ __launch_bounds__(kThreads) void fill_kernel(const __grid_constant__ RandomFill call,
                                                        int64_t rows, int64_t cols) {
  std::byte* data = call.out.data;
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* out = reinterpret_cast<T*>(data + row * call.out.row_bytes);
    const int64_t first = call.first + row * call.index_stride;
    const int64_t begin =
        first / 2 + static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t pair = begin + i * kThreads;
      const int64_t col = 2 * pair - first;  // -1: the pair began before the row
      if (col >= cols) break;
      const float2 x = normals(call.seed, static_cast<uint64_t>(pair));
      if (col >= 0) out[col] = T(call.stddev * x.x);
      if (col + 1 < cols) out[col + 1] = T(call.stddev * x.y);
    }
  }
}

}  // namespace

void random_fill(const RandomFill& call, LaunchContext context) {
  const int64_t rows = call.out.rows();
  const int64_t cols = call.out.cols();
  if (rows == 0 || cols == 0) return;
  const int64_t pairs = cols / 2 + 1;  // a row may begin and end within one
  const dim3 grid(static_cast<unsigned>((pairs + kThreads * kEach - 1) / (kThreads * kEach)),
                  static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
  const auto launch = [&](auto kernel) {
    launch_kernel(context, kernel, grid, dim3(kThreads), 0, call, rows, cols);
  };
  switch (call.out.dtype) {
    case DType::f32:
      return launch(fill_kernel<float>);
    case DType::f16:
      return launch(fill_kernel<__half>);
    case DType::bf16:
      return launch(fill_kernel<__nv_bfloat16>);
    default:
      fail(ErrorCode::kUnsupported, "random weights of type {}, allowed are f32, f16 and bf16",
           name(call.out.dtype));
  }
}

}  // namespace braid::cuda
