#pragma once

#include <cstdint>

#include "braid/backend/cuda/launch.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// Normal numbers that depend only on the seed and an element's index, so every rank can make its
// part of a tensor: element (i, j) has the index first + i * index_stride + j.
struct RandomFill {
  TensorView out;  // device memory [rows, cols], f32, f16 or bf16; rows may lie apart
  int64_t first = 0;
  int64_t index_stride = 0;
  uint64_t seed = 0;
  float stddev = 1;
};

// One kernel; capturable. Fails with kUnsupported on other dtypes.
void random_fill(const RandomFill& call, LaunchContext context);

}  // namespace braid::cuda
