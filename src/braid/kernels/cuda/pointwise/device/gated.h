#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/ops/linear.h"

namespace braid::cuda {

// y = act(gate) * up, the op gated. gate and up may be column ranges of a matrix; y may be gate or
// up. Before rounding, the relative error of a product is at most (|gate| + 8) 2^-23.
struct GatedParams {
  TensorView gate;  // f32 or bf16 [T, F]
  TensorView up;    // as gate
  TensorView y;     // f32 or bf16 [T, F]; bf16 if gate is
  ops::Activation activation = ops::Activation::silu;
  const int64_t* rows = nullptr;  // device: live rows
};

// For choose_map. Fails as the launch does.
RowsDesc gated_desc(const GatedParams& params);

void gated(const GatedParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
