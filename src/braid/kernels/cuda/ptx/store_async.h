#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "braid/kernels/cuda/ptx/cluster.h"

// Stores into the shared memory of a cluster's CTA; each store counts its bytes as arrived on a
// barrier of the CTA (sm_90). Both addresses come from cluster_address.
namespace braid::cuda::ptx {

__device__ inline void store_async(uint32_t address, uint4 x, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(barrier)
      : "memory");
}

__device__ inline void store_async(uint32_t address, uint2 x, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
          address),
      "r"(x.x), "r"(x.y), "r"(barrier)
      : "memory");
}

}  // namespace braid::cuda::ptx
