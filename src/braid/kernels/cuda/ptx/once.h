#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/cluster.h"

// Bulk copies global -> shared for data without reuse, and stores into the shared memory of other
// CTAs in the cluster that complete on those CTAs' barriers (sm_90).
namespace braid::cuda::ptx {

// An L2 policy for bytes that are read once: the first to leave.
__device__ inline uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// `bytes` is a multiple of 16, both addresses are 16-byte aligned.
__device__ inline void bulk_copy(void* smem, const void* global, uint32_t bytes, uint64_t* barrier,
                                 uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(smem_address(smem)),
      "l"(global), "r"(bytes), "r"(smem_address(barrier)), "l"(policy)
      : "memory");
}

// Both addresses from cluster_address, of the same CTA; 8 bytes complete on `barrier`.
__device__ inline void store_async_f32x2(uint32_t address, float a, float b, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          address),
      "f"(a), "f"(b), "r"(barrier)
      : "memory");
}

// As mbarrier_arrive and mbarrier_wait, ordering memory among the CTAs of the cluster.
__device__ inline void mbarrier_arrive_remote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

__device__ inline void mbarrier_wait_cluster(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(smem_address(barrier)),
      "r"(parity)
      : "memory");
}

}  // namespace braid::cuda::ptx
