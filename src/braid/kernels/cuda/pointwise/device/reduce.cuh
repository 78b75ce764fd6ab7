#pragma once

namespace braid::cuda {

// Sum over aligned groups of `lanes` (a power of two to 32) lanes in a warp, in a fixed order.
__device__ inline float sum_lanes(float x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Sum over a CTA with `threads` threads, whole warps, at most 1024; each thread calls it once.
__device__ inline float sum_cta(float x, int thread, int threads) {
  __shared__ float partial[32];
  x = sum_lanes(x, 32);
  if (thread % 32 == 0) partial[thread / 32] = x;
  __syncthreads();
  const int lane = thread % 32;
  return sum_lanes(lane < threads / 32 ? partial[lane] : 0, 32);
}

}  // namespace braid::cuda
