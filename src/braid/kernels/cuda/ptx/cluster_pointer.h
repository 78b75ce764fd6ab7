#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/cluster.h"

namespace braid::cuda::ptx {

// The first half of cluster_sync; orders memory only together with an earlier fence.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Stores x at `p` of CTA `rank` and completes 8 bytes on the CTA's `barrier`; both addresses are
// this CTA's.
__device__ inline void store_async_cluster(uint64_t* p, uint64_t x, uint64_t* barrier,
                                           uint32_t rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(
                   cluster_address(p, rank)),
               "l"(x), "r"(cluster_address(barrier, rank))
               : "memory");
}

// The pointer in CTA `rank` of the cluster that corresponds to `p` in this CTA's shared memory, for
// plain loads, stores and atomics (sm_90).
template <class T>
__device__ inline T* cluster_pointer(T* p, uint32_t rank) {
  uint64_t address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(reinterpret_cast<uint64_t>(p)), "r"(rank));
  return reinterpret_cast<T*>(address);
}

}  // namespace braid::cuda::ptx
