#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_kernel.cuh"
#include "braid/kernels/cuda/fused_attention/device/fused_kernels.h"

namespace braid::cuda {

template <int kD, ExchangePath kPath>
FusedKernel fused_kernel_of(int group) {
  return group == 1   ? fused_kernel<kD, 1, kPath>
         : group == 2 ? fused_kernel<kD, 2, kPath>
                      : fused_kernel<kD, 4, kPath>;
}

template <int kD>
FusedKernel fused_kernel_of(int group, ExchangePath path) {
  return path == ExchangePath::chip ? fused_kernel_of<kD, ExchangePath::chip>(group)
                                    : fused_kernel_of<kD, ExchangePath::memory>(group);
}

template <int kD>
FusedKernel fused_by_head_of(int group, ExchangePath path) {
  constexpr auto kChip = ExchangePath::chip, kMemory = ExchangePath::memory;
  constexpr auto kHead = FusedSplit::head;
  if (path == kMemory) {
    return group == 1 ? fused_kernel<kD, 1, kMemory, kHead> : fused_kernel<kD, 4, kMemory, kHead>;
  }
  return group == 1 ? fused_kernel<kD, 1, kChip, kHead> : fused_kernel<kD, 4, kChip, kHead>;
}

}  // namespace braid::cuda
