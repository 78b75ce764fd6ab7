#pragma once

#include <cuda_fp16.h>

#include "braid/kernels/cuda/fused_attention/device/batch_kernel.cuh"
#include "braid/kernels/cuda/fused_attention/device/fused_kernels.h"

namespace braid::cuda {

// kSets: sets of kFusedSetHeads query heads.
template <int kD, int kSets = 1>
FusedKernel fused_batch_kernel_of(DType cache, ExchangePath path) {
  constexpr auto kChip = ExchangePath::chip, kMemory = ExchangePath::memory;
  const bool chip = path == kChip;
  if (cache == DType::f16) {
    return chip ? fused_batch_kernel<kD, __half, kChip, kSets>
                : fused_batch_kernel<kD, __half, kMemory, kSets>;
  }
  return chip ? fused_batch_kernel<kD, __nv_bfloat16, kChip, kSets>
              : fused_batch_kernel<kD, __nv_bfloat16, kMemory, kSets>;
}

}  // namespace braid::cuda
