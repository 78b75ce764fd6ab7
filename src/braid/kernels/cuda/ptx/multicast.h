#pragma once

#include <cuda.h>

#include <cstdint>

#include "braid/kernels/cuda/ptx/barrier.h"

// Copies that the CTAs of a cluster share, and arrivals of copies on barriers (sm_90).
namespace braid::cuda::ptx {

// Writes the box, and completes on the barrier, at the same place in each CTA of `ctas`.
__device__ inline void tma_multicast_3d(void* smem, const CUtensorMap* map, uint64_t* barrier,
                                        int c0, int c1, int c2, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "h"(ctas)
      : "memory");
}

// Arrives once all cp_async_16 of this thread so far have written. Of the barrier's arrivals, one
// is this thread's. Readers through wgmma need a fence_proxy_async behind their wait.
__device__ inline void mbarrier_arrive_copied(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(barrier))
               : "memory");
}

}  // namespace braid::cuda::ptx
