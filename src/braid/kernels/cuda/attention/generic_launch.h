#pragma once

#include "braid/kernels/cuda/attention/launch.h"

namespace braid::cuda {

// An instance per head dimension and dtype, each in a separate translation unit.
template <DType kDType, int kDqk, int kDv, int kBlockM>
void launch_generic_variant(const AttentionPlan& plan, cudaStream_t stream);

}  // namespace braid::cuda
