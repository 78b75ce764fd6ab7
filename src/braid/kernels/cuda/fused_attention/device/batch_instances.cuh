#pragma once

#include <cuda_fp16.h>

#include "braid/kernels/cuda/fused_attention/device/batch_kernel.cuh"
#include "braid/kernels/cuda/fused_attention/device/fused_kernels.h"

namespace braid::cuda {

template <int kD>
FusedKernel fused_batch_kernel_of(DType cache, ExchangePath path) {
  constexpr auto kChip = ExchangePath::chip, kMemory = ExchangePath::memory;
  const bool chip = path == kChip;
  if (cache == DType::f16) {
    return chip ? fused_batch_kernel<kD, __half, kChip> : fused_batch_kernel<kD, __half, kMemory>;
  }
  return chip ? fused_batch_kernel<kD, __nv_bfloat16, kChip>
              : fused_batch_kernel<kD, __nv_bfloat16, kMemory>;
}

}  // namespace braid::cuda
