#pragma once

#include <cstdint>

namespace braid::cuda::ptx {

// Transposes an 8 x 8 matrix of 16-bit elements held by a warp: lane l brings row l / 4, columns
// 2 (l % 4) and the next, and gets the same place of the transpose.
__device__ inline uint32_t transpose_8x8(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

}  // namespace braid::cuda::ptx
