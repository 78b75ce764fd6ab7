#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_args.h"

namespace braid::cuda {

using FusedKernel = void (*)(const FusedArgs);

// The instance for heads of 64 or 128, that many query heads of a KV head and a way of exchanges.
FusedKernel fused_kernel_64(int group, ExchangePath path);
FusedKernel fused_kernel_128(int group, ExchangePath path);

}  // namespace braid::cuda
