#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda::ptx {

// The inverse of ldmatrix_x4 (ptx/mma.h): four matrices of 8 x 8 elements of 16 bits, registers ->
// shared (sm_90). Lane 8 m + i gives the place of matrix m's row i.
__device__ inline void stmatrix_x4(void* smem, const uint32_t (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(smem_address(smem)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

}  // namespace braid::cuda::ptx
