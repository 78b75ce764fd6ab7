#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"

namespace braid::cuda {

// y = a + b, the op add; y may be a.
struct AddParams {
  TensorView a;                   // f32, f16 or bf16 [T, C]
  TensorView b;                   // as a, or bf16 beside f32 [T, C]
  TensorView y;                   // as a [T, C]
  const int64_t* rows = nullptr;  // device: live rows
};

// y = x in another type, or in other places.
struct ConvertParams {
  TensorView x;                   // f32, f16 or bf16 [T, C]
  TensorView y;                   // f32, f16 or bf16 [T, C]
  const int64_t* rows = nullptr;  // device: live rows
};

// For choose_map. They fail as the launches do.
RowsDesc add_desc(const AddParams& params);
RowsDesc convert_desc(const ConvertParams& params);

void add(const AddParams& params, const RowsConfig& config, LaunchContext context);
void convert(const ConvertParams& params, const RowsConfig& config, LaunchContext context);

}  // namespace braid::cuda
