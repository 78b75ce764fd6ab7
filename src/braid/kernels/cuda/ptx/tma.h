#pragma once

#include <cuda.h>

#include <cstdint>

#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/prefetch.h"

// Bulk tensor copies global -> shared (sm_90). Coordinates are in elements, innermost first; what
// lies outside the tensor arrives as zeros and counts as bytes.
namespace braid::cuda::ptx {

// Prefetches a map, so the first copy does not wait for the map.
__device__ inline void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// With an L2 policy.
__device__ inline void tma_load_2d(void* smem, const CUtensorMap* map, uint64_t* barrier, int c0,
                                   int c1, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "l"(policy)
      : "memory");
}

__device__ inline void tma_load_3d(void* smem, const CUtensorMap* map, uint64_t* barrier, int c0,
                                   int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// With an L2 policy.
__device__ inline void tma_load_3d(void* smem, const CUtensorMap* map, uint64_t* barrier, int c0,
                                   int c1, int c2, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "l"(policy)
      : "memory");
}

__device__ inline void tma_load_4d(void* smem, const CUtensorMap* map, uint64_t* barrier, int c0,
                                   int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// Writes the box, and completes on the barrier, at the same place in each CTA of `cta_mask`.
__device__ inline void tma_multicast_4d(void* smem, const CUtensorMap* map, uint64_t* barrier,
                                        int c0, int c1, int c2, int c3, uint16_t cta_mask) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(cta_mask)
      : "memory");
}

__device__ inline void tma_load_5d(void* smem, const CUtensorMap* map, uint64_t* barrier, int c0,
                                   int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// `bytes` is a multiple of 16, `global` 16-byte aligned.
__device__ inline void prefetch_l2_bulk(const void* global, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

}  // namespace braid::cuda::ptx
