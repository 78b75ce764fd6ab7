#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/ops/rope_table.h"

namespace braid::cuda {

// The op rope_table: neighbouring columns turn by the angles of a table, in f32. y may be x.
struct RotateRowsParams {
  TensorView x;      // f32, f16 or bf16 [B * L, H * D]
  TensorView table;  // f32 [R, rotary], packed: cosine and sine of each pair
  TensorView y;      // as x
  ops::RopeTableAttrs attrs;
};

// For choose_map. Fails as the launch does.
RowsDesc rotate_rows_desc(const RotateRowsParams& params);

void rotate_rows(const RotateRowsParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
