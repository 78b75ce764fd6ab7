#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_args.h"

namespace braid::cuda {

using FusedKernel = void (*)(const FusedArgs);

// The instance for a single token, by head dim 64 or 128, group of query heads, and path of
// exchanges.
FusedKernel fused_kernel_64(int group, ExchangePath path);
FusedKernel fused_kernel_128(int group, ExchangePath path);

// The same for clusters that divide heads.
FusedKernel fused_kernel_by_head_64(int group, ExchangePath path);
FusedKernel fused_kernel_by_head_128(int group, ExchangePath path);

// The same for several tokens, with a cache in bf16 or f16.
FusedKernel fused_batch_kernel_64(DType cache, ExchangePath path);
FusedKernel fused_batch_kernel_128(DType cache, ExchangePath path);

// The same for groups beyond kFusedSetHeads.
FusedKernel fused_wide_kernel_64(DType cache, ExchangePath path);
FusedKernel fused_wide_kernel_128(DType cache, ExchangePath path);

}  // namespace braid::cuda
