#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"

namespace braid::cuda {

// y[t] = scale * table[ids[t]], the op embedding. An id outside [0, V) reads nothing and gives a
// row of NaN.
struct EmbeddingParams {
  TensorView ids;    // i32 [T]
  TensorView table;  // any dtype but i32 [V, C]: constant
  TensorView y;      // f32 or bf16 [T, C]
  float scale = 1;
  const int64_t* rows = nullptr;  // device: live rows
};

// For choose_map. Fails as the launch does.
RowsDesc embedding_desc(const EmbeddingParams& params);

void embedding(const EmbeddingParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
