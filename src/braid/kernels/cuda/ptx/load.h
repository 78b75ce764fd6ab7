#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace braid::cuda::ptx {

// An ordinary load in place: the compiler does not move the load ahead of a branch.
__device__ inline int64_t load_in_place(const int64_t* p) {
  int64_t x;
  asm volatile("ld.global.b64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}

// 16 bytes of constant memory without reuse: no place in L1, the first to leave L2.
__device__ inline uint4 load_once(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

}  // namespace braid::cuda::ptx
