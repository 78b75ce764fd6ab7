#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"

namespace braid::cuda {

// Copies rows bitwise, for a value or for two at once (keys and values):
//   y[to ? to[i] : i] = x[from ? from[i] : i],  i < n
// A row named -1 by `from` or `to` is left out. Views are packed; only a row's bytes matter, and
// not a row's dimensions.
struct MoveRowsParams {
  TensorView x[2];                // any dtype [X, C]
  TensorView y[2];                // as x [Y, C]
  int num = 1;                    // values: 1 or 2, of the same sizes
  int64_t n = 0;                  // rows to move
  int64_t row_bytes = 0;          // bytes per row; a multiple of 2
  TensorView from, to;            // i32 [n], or no data: i
  const int64_t* rows = nullptr;  // device, live ones of the n; null: all
};

// For choose_map, in words of up to 16 bytes. Fails as the launch does.
RowsDesc move_rows_desc(const MoveRowsParams& params);

void move_rows(const MoveRowsParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
