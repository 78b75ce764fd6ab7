#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/system.h"

// 64-bit flags that are shared with the host.
namespace braid::cuda::ptx {

__device__ inline uint64_t load_acquire_system(const uint64_t* p) {
  uint64_t x;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}

// What this thread wrote before, and what it saw others write, is visible to who sees `x`.
__device__ inline void store_release_system(uint64_t* p, uint64_t x) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

}  // namespace braid::cuda::ptx
