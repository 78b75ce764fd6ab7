#pragma once

#include "braid/kernels/cuda/linear/device/dequantize.h"

namespace braid::cuda {

template <DType kType>
void launch_dequantize(const DequantizeParams& params, const LaunchContext& context);

}  // namespace braid::cuda
