#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// Loads from shared memory by 32-bit addresses (barrier.h, smem_address): pointers would be
// computed from the CTA's place in the cluster again and again.
namespace braid::cuda::ptx {

// Keeps a value in a register if the compiler would rather compute it anew.
__device__ inline void keep(uint32_t& x) {
  asm volatile("" : "+r"(x));
}

__device__ inline uint32_t load_shared_u16(uint32_t address) {
  uint16_t x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(address));
  return x;
}

__device__ inline uint32_t load_shared_u32(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address));
  return x;
}

__device__ inline uint4 load_shared_u32x4(uint32_t address) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address));
  return x;
}

__device__ inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

}  // namespace braid::cuda::ptx
