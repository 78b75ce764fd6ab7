#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"

namespace braid::cuda {

// A modulation's vectors for the rows of B sequences: f32 [B, M] at the first of C columns.
struct ModulationRows {
  const float* data = nullptr;  // null: absent
  int64_t stride = 0;           // M
};

// The op layer_norm: y = (x - mean) / sqrt(variance + eps) over groups of `group` columns, then
// * w + b and * (1 + scale) + shift, in f32. The variance is summed around the mean.
struct LayerNormParams {
  TensorView x;  // f32, f16 or bf16 [n, C]
  TensorView w;  // f32, f16 or bf16 [group], constant; or absent
  TensorView b;  // as w
  ModulationRows scale, shift;
  int64_t rows_per_sequence = 1;  // rows of x per row of the modulation
  TensorView y;                   // f32, f16 or bf16 [n, C]
  float eps = 0;
  int64_t group = 0;  // divides C
};

// The op gated_add: y = a + gate * b; y may be a.
struct GatedAddParams {
  TensorView a;  // f32, f16 or bf16 [n, C]
  TensorView b;  // f32, f16 or bf16 [n, C]
  ModulationRows gate;
  int64_t rows_per_sequence = 1;
  TensorView y;  // as a
};

// For choose_norm and choose_map. They fail as the launches do.
RowsDesc layer_norm_desc(const LayerNormParams& params);
RowsDesc gated_add_desc(const GatedAddParams& params);

void layer_norm(const LayerNormParams& params, const RowsConfig& config, LaunchContext context);
void gated_add(const GatedAddParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
