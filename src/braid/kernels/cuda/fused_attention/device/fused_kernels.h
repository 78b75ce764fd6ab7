#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_args.h"

namespace braid::cuda {

using FusedKernel = void (*)(const FusedArgs);

// The instance for heads of 64 or 128, a group of query heads, and a path of exchanges.
FusedKernel fused_kernel_64(int group, ExchangePath path);
FusedKernel fused_kernel_128(int group, ExchangePath path);

}  // namespace braid::cuda
