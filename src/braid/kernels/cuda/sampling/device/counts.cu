#include <algorithm>

#include "braid/base/error.h"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/sampling/device/counts.h"
#include "braid/kernels/cuda/sampling/params.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;

__global__ __launch_bounds__(kThreads) void clear_kernel(uint32_t* counts, int32_t vocab) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < vocab) counts[i] = 0;
}

__global__ __launch_bounds__(kThreads) void count_kernel(const __grid_constant__ CountTokens call) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= call.n) return;
  const int32_t id = call.ids[i];
  if (id < 0 || id >= call.vocab) return;
  if (call.generated) {
    atomicAdd(call.counts + id, 1u);
  } else {
    atomicOr(call.counts + id, kSeenInPrompt);
  }
}

dim3 blocks_for(int64_t n) {
  return dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads));
}

}  // namespace

void clear_counts(uint32_t* counts, int32_t vocab, LaunchContext context) {
  BRAID_CHECK(counts != nullptr && vocab > 0 && vocab <= kMaxVocab);
  launch_kernel(context, clear_kernel, blocks_for(vocab), dim3(kThreads), 0, counts, vocab);
}

void count_tokens(const CountTokens& call, LaunchContext context) {
  BRAID_CHECK(call.counts != nullptr && call.vocab > 0 && call.n >= 0);
  if (call.n == 0) return;
  launch_kernel(context, count_kernel, blocks_for(call.n), dim3(kThreads), 0, call);
}

}  // namespace braid::cuda
