#pragma once

#include "braid/kernels/cuda/attention/device/launch.h"

namespace braid::cuda {

// A row of kGenericVariants; a translation unit for each head dimension.
template <DType kDType, int kDqk, int kDv, int kBlockM>
void launch_generic(const AttentionPlan& plan, cudaStream_t stream);

}  // namespace braid::cuda
