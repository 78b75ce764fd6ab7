#include "braid/base/error.h"
#include "braid/kernels/cuda/sampling/device/sampled_ids.cuh"
#include "braid/kernels/cuda/sampling/device/take_tokens.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 128;

__global__ __launch_bounds__(kThreads) void take_tokens_kernel(
    const __grid_constant__ TakeTokens p) {
  put_sampled(p.token_ids, p.tokens, p.sampled, p.capacity, kThreads);
  __syncthreads();
  if (threadIdx.x == 0) tell_taken(p.taken, ++*p.step);
}

}  // namespace

// Never launched early: the host overwrites inputs that the upload before must have read.
void take_tokens(const TakeTokens& p, LaunchContext context) {
  BRAID_CHECK(p.sampled && p.capacity > 0 && p.token_ids && p.step && p.taken);
  launch_kernel({context.stream, false}, take_tokens_kernel, dim3(1), dim3(kThreads), 0, p);
}

}  // namespace braid::cuda
