#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/ops/group_norm.h"

namespace braid::cuda {

// The op group_norm, x read twice. Sums are of differences from a group's first value, in f32 over
// kGroupNormPixels pixels of a thread and in f64 beyond, in a fixed order.
struct GroupNormParams {
  TensorView x;               // f32 or bf16 [B * P, C]
  TensorView w, b;            // f32, f16 or bf16 [C]
  TensorView y;               // as x
  void* workspace = nullptr;  // device, group_norm_workspace()
  ops::GroupNormAttrs attrs;
};

int64_t group_norm_workspace(const ops::GroupNormAttrs& attrs, const Shape& x);

// Fails with kInvalidArgument or kUnsupported, naming what is wrong.
void group_norm(const GroupNormParams& params, LaunchContext context);

}  // namespace braid::cuda
