#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/cluster.h"

namespace braid::cuda::ptx {

// The first half of cluster_sync; it orders no memory but what a fence before it orders.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Stores x at `p` of CTA `rank` and completes 8 bytes on its `barrier`; both are named by their
// addresses in this CTA.
__device__ inline void store_async_cluster(uint64_t* p, uint64_t x, uint64_t* barrier,
                                           uint32_t rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(
                   cluster_address(p, rank)),
               "l"(x), "r"(cluster_address(barrier, rank))
               : "memory");
}

// `p`, which points into this CTA's shared memory, in that of CTA `rank` of the cluster: for plain
// loads, stores and atomics (sm_90).
template <class T>
__device__ inline T* cluster_pointer(T* p, uint32_t rank) {
  uint64_t address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(reinterpret_cast<uint64_t>(p)), "r"(rank));
  return reinterpret_cast<T*>(address);
}

}  // namespace braid::cuda::ptx
