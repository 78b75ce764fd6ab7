#pragma once

namespace braid::cuda::ptx {

// The line of `p` is on its way to L2. Also allowed where the data are not there yet: L2 is where
// all of a GPU's accesses meet.
__device__ inline void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

}  // namespace braid::cuda::ptx
