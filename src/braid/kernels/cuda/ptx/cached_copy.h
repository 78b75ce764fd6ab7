#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda::ptx {

// As cp_async_16 (ptx/mma.h), through the first-level cache: for data that the SM reads again soon.
__device__ inline void cp_async_16_cached(void* smem, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(smem)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

}  // namespace braid::cuda::ptx
