#pragma once

#include <cstdint>

// Memory that other CTAs of this GPU read and write.
namespace braid::cuda::ptx {

__device__ inline int32_t load_acquire_gpu(const int32_t* p) {
  int32_t x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}

// What this thread wrote before, and what it saw others write, is visible to who sees the sum.
__device__ inline void add_release_gpu(int32_t* p, int32_t x) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

}  // namespace braid::cuda::ptx
