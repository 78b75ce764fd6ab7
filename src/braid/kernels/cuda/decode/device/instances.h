#pragma once

#include "braid/kernels/cuda/decode/device/decode_args.h"
#include "braid/kernels/cuda/decode/device/launch.h"
#include "braid/tensor/dtype.h"

namespace braid::cuda {

using DecodeKernel = void (*)(DecodeArgs);
using StateKernel = void (*)(StateArgs);

// The kernels for a cache of `dtype`; each head dimension in separate translation units.
template <int kHeadDim>
DecodeKernel decode_kernel_of(DType dtype);
template <int kHeadDim>
StateKernel state_kernel_of(DType dtype);

// Arguments for both kernels. Fails with kInvalidArgument on misaligned pointers.
DecodeArgs decode_args(const DecodeDesc& desc, const DecodeParams& params,
                       const DecodeConfig& config);

}  // namespace braid::cuda
