#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_args.h"

namespace braid::cuda {

using FusedKernel = void (*)(const FusedArgs);

// The instance of a single token for heads of 64 or 128, a group of query heads, and a path of
// exchanges.
FusedKernel fused_kernel_64(int group, ExchangePath path);
FusedKernel fused_kernel_128(int group, ExchangePath path);

// The same for clusters that divide heads.
FusedKernel fused_kernel_by_head_64(int group, ExchangePath path);
FusedKernel fused_kernel_by_head_128(int group, ExchangePath path);

// The same for several tokens, with a cache in bf16 or f16.
FusedKernel fused_batch_kernel_64(DType cache, ExchangePath path);
FusedKernel fused_batch_kernel_128(DType cache, ExchangePath path);

}  // namespace braid::cuda
