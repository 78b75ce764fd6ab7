#pragma once

#include <cuda.h>

#include <cstdint>

#include "braid/kernels/cuda/ptx/barrier.h"

// Copies that the CTAs of a cluster share, boxes brought to L2, and arrivals of copies on barriers
// (sm_90). Attention's shared boxes of four dimensions are in tma.h.
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

__device__ inline void tma_multicast_5d(void* smem, const CUtensorMap* map, uint64_t* barrier,
                                        int c0, int c1, int c2, int c3, int c4, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "h"(ctas)
      : "memory");
}

// Brings a box into L2.
__device__ inline void tma_prefetch_4d(const CUtensorMap* map, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map),
               "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// Arrives once all cp_async_16 of this thread so far have written. Of the barrier's arrivals, one
// is this thread's. Readers through wgmma need a fence_proxy_async behind their wait.
__device__ inline void mbarrier_arrive_copied(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(barrier))
               : "memory");
}

}  // namespace braid::cuda::ptx
