#pragma once

#include "braid/kernels/cuda/ptx/system.h"

namespace braid::cuda {

// Parts of kernels that begin a step with tokens which the host does not know yet, for a CTA of
// `threads` threads.

// ids [n]: -1 - s becomes sampled[s] if s < capacity.
__device__ __forceinline__ void put_sampled(int32_t* ids, int64_t n, const int32_t* sampled,
                                            int capacity, int threads) {
  for (int64_t t = threadIdx.x; t < n; t += threads) {
    const int32_t s = -1 - ids[t];
    if (s >= 0 && s < capacity) ids[t] = sampled[s];
  }
}

// Tells the host, by a u64 in pinned memory, that so many steps have read their inputs. Requires: a
// barrier behind these reads; called by one thread.
__device__ __forceinline__ void tell_taken(uint2* taken, uint64_t steps) {
  __threadfence_system();
  ptx::store_relaxed_system(taken,
                            {static_cast<uint32_t>(steps), static_cast<uint32_t>(steps >> 32)});
}

}  // namespace braid::cuda
