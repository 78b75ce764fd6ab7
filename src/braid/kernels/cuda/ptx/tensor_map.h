#pragma once

#include <cuda.h>

namespace braid::cuda::ptx {

// Brings a tensor map itself near, so that the first copy by it does not wait for that (sm_90).
__device__ inline void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace braid::cuda::ptx
