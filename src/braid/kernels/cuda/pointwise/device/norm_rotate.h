#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/ops/norm_rope_table.h"

namespace braid::cuda {

// The op norm_rope_table: heads of 64, 128 or 256 that turn whole. Outputs may be the inputs.
struct NormRotateParams {
  TensorView x[2];   // f16 or bf16 [B * L, H_i * D]: queries, keys
  TensorView w[2];   // f32, f16 or bf16 [D], constant
  TensorView table;  // f32 [R, D], packed
  TensorView y[2];   // as x
  ops::NormRopeTableAttrs attrs;
};

// Fails with kInvalidArgument or kUnsupported, naming the fault.
void norm_rotate(const NormRotateParams& params, LaunchContext context);

}  // namespace braid::cuda
