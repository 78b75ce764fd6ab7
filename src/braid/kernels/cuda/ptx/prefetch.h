#pragma once

namespace braid::cuda::ptx {

// Brings the line of `p` to L2. Also allowed before the data is written: all accesses of a GPU meet
// in L2.
__device__ inline void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

}  // namespace braid::cuda::ptx
