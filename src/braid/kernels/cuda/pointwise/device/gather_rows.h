#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/program/value.h"

namespace braid::cuda {

// y[i] = x[rows[i] - part->begin.token] for i < part->count.row, the op gather_rows; a bitwise
// copy. A row outside x gives NaN; row -1 with `zeros_for_none` gives zeros.
struct GatherRowsParams {
  TensorView x;                     // f32, f16 or bf16 [T, C]
  TensorView rows;                  // i32 [R]: rows of the whole batch
  TensorView y;                     // as x [R, C]
  const BatchPart* part = nullptr;  // device
  bool zeros_for_none = false;
};

// For choose_map: in words up to 16 bytes in place of elements. Fails as the launch does.
RowsDesc gather_rows_desc(const GatherRowsParams& params);

void gather_rows(const GatherRowsParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
