#pragma once

#include <cstdint>

namespace braid::cuda::ptx {

// An ordinary load that stays where it stands: the compiler does not read ahead of a branch.
__device__ inline int64_t load_in_place(const int64_t* p) {
  int64_t x;
  asm volatile("ld.global.b64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}

}  // namespace braid::cuda::ptx
