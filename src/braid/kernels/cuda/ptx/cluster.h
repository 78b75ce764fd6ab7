#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/barrier.h"

// Clusters of CTAs and each other's shared memory (sm_90).
namespace braid::cuda::ptx {

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline uint32_t cluster_size() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// Meets all threads of all CTAs in the cluster.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Both halves of cluster_sync, for threads with work in between.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// The address in CTA `rank` that corresponds to `p` in this CTA's shared memory.
__device__ inline uint32_t cluster_address(const void* p, uint32_t rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem_address(p)), "r"(rank));
  return address;
}

__device__ inline float4 load_cluster_f32x4(uint32_t address) {
  float4 x;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address));
  return x;
}

__device__ inline float2 load_cluster_f32x2(uint32_t address) {
  float2 x;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
  return x;
}

// Puts x into CTA `rank`'s shared memory, and counts four bytes as arrived there.
__device__ inline void store_async_cluster(int* at, int x, uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote, full;\n"
      "mapa.shared::cluster.u32 remote, %0, %3;\n"
      "mapa.shared::cluster.u32 full, %2, %3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.s32 [remote], %1, [full];\n"
      "}\n" ::"r"(smem_address(at)),
      "r"(x), "r"(smem_address(barrier)), "r"(rank)
      : "memory");
}

}  // namespace braid::cuda::ptx
