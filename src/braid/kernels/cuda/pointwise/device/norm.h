#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"

namespace braid::cuda {

// s = a + b, y = s / sqrt(mean(s^2) + eps) * w over groups of `group` columns, in f32: the ops
// rms_norm (without b and s) and add_rms_norm. s may be a; no other operands may overlap.
struct RmsNormParams {
  TensorView a;  // f32, f16 or bf16 [T, C]; with b: f32
  TensorView b;  // f32 or bf16 [T, C], or absent
  TensorView w;  // f32, f16 or bf16 [group]: constant
  TensorView s;  // f32 [T, C], with b
  TensorView y;  // f32, f16 or bf16 [T, C]; with b: not f16
  float eps = 0;
  int64_t group = 0;              // divides C
  const int64_t* rows = nullptr;  // device: live rows
};

// For choose_norm. Fails as the launch does.
RowsDesc rms_norm_desc(const RmsNormParams& params);

void rms_norm(const RmsNormParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
