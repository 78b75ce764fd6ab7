#pragma once

#include "braid/kernels/cuda/comm/device/comm_view.h"

namespace braid::cuda {

// Rows past the live ones are left alone. x and y have one type, T: bf16 or f32.
struct ReduceNormKernelParams {
  const void* x;   // T [rows, cols], this rank's summand
  const float* r;  // f32 [rows, cols], residual
  const void* w;   // bf16 or f32 [cols]
  float* s;        // f32 [rows, cols], residual + sum; may be r
  void* y;         // T [rows, cols]
  int64_t rows;
  int64_t cols;         // a multiple of 8
  const int64_t* live;  // device, [1], or null
  float eps;
  bool w_bf16;
  int spread;  // CTAs that share a row's lines and output
};

// The same with the residual divided over tokens: x and y at each rank, r and s [rows of the rank,
// cols].
struct ScatterNormKernelParams {
  const void* x[kMaxCommRanks];  // T [rows, cols]
  const float* r;                // f32 [ceil(rows / P), cols]
  const void* w;                 // bf16 or f32 [cols]
  float* s;                      // as r; may be r
  void* y[kMaxCommRanks];        // T [rows, cols]
  int64_t rows;
  int64_t cols;
  const int64_t* live;
  float eps;
  bool w_bf16;
};

using ReduceNormKernel = void (*)(const CommView, const ReduceNormKernelParams);
ReduceNormKernel reduce_norm_kernel_of(DType dtype, int units);
// For as many groups as rows, and a unit for each thread.
ReduceNormKernel reduce_norm_once_kernel_of(DType dtype, int ranks);
using ScatterNormKernel = void (*)(const CommView, const ScatterNormKernelParams);
ScatterNormKernel scatter_norm_kernel_of(DType dtype, int units);

}  // namespace braid::cuda
