#include "braid/backend/cuda/read_stream.h"

#include <cstdint>

namespace braid::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kLoads = 8;  // 16-byte loads of a thread in flight

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, size_t count, uint32_t* sink) {
  uint32_t x = 0;
  const size_t threads = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += kLoads * threads) {
    uint4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      v[j] = i + j * threads < count ? __ldcs(data + i + j * threads) : uint4{};
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) x ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (x == 0x12345678u) *sink = x;  // keeps the compiler from dropping the reads
}

}  // namespace

void read_stream(const void* data, size_t bytes, void* sink, int num_sms,
                 const LaunchContext& context) {
  launch_kernel(context, read_kernel, dim3(static_cast<unsigned>(num_sms)), dim3(kThreads), 0,
                static_cast<const uint4*>(data), bytes / 16, static_cast<uint32_t*>(sink));
}

}  // namespace braid::cuda
