#pragma once

#include "braid/kernels/cuda/decode/device/decode_args.h"
#include "braid/tensor/dtype.h"

namespace braid::cuda {

using DecodeKernel = void (*)(DecodeArgs);

// The kernel for a cache of `dtype`; each head dimension in a separate translation unit.
template <int kHeadDim>
DecodeKernel decode_kernel_of(DType dtype);

}  // namespace braid::cuda
