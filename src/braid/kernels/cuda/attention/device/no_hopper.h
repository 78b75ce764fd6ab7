#pragma once

#include "braid/base/error.h"
#include "braid/kernels/cuda/attention/device/hopper_launch.h"

// Stands for Hopper's kernels in a build for other GPUs, which choose none of them.
namespace braid::cuda {

template <DType kDType, int kVariant>
void launch_hopper(const HopperParams&, int, int, cudaStream_t) {
  fail(ErrorCode::kUnsupported, "attention: this build has no code for Hopper");
}

}  // namespace braid::cuda
