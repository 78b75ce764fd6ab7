#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/ops/unary.h"

namespace braid::cuda {

// y = f(x), the op unary; y may be x. The relative error is at most (|x| + 8) 2^-23 before y is
// rounded.
struct UnaryParams {
  TensorView x;  // f32, f16 or bf16 [T, C]
  TensorView y;  // as x
  ops::UnaryFunction function = ops::UnaryFunction::silu;
};

// For choose_map. Fails as the launch does.
RowsDesc unary_desc(const UnaryParams& params);

void unary(const UnaryParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
