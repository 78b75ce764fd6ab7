#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/experts/expert_config.h"

namespace braid::cuda {

// Every expert's matrix for a single weight, in device memory.
struct ExpertWeight {
  const void* data = nullptr;  // [E, n, k] in dtype, rows of whole blocks
  DType dtype = DType::bf16;
  int64_t row_bytes = 0;       // from row to row; experts follow each other
  const void* bias = nullptr;  // [E, n] or null
  DType bias_dtype = DType::f32;
};

// y[r] = x[row of r] W_e^T + b_e for the rows r of each expert e, or with a gate
// act(x W_0e^T + b_0e) * (x W_1e^T + b_1e). Products are bf16 x bf16 with f32 sums: weights in f32
// and f16 are rounded to bf16; integers of block formats are exact, and scales multiply in f32. The
// config fixes the order of sums. Weights of an expert without rows stay unread.
struct ExpertProduct {
  const void* x = nullptr;  // bf16
  int64_t x_stride = 0;     // elements from row to row
  void* y = nullptr;        // bf16
  int64_t y_stride = 0;

  // Expert e has the rows begin[e] .. begin[e + 1] of y; row r reads row token[r] of x, or row r.
  const int32_t* begin = nullptr;  // device [E + 1]
  const int32_t* token = nullptr;  // device [rows], or null
  // Without `begin` each expert has the rows 0 .. live, at columns of its own: x_step and y_step
  // elements from expert to expert.
  const int64_t* live = nullptr;  // device; null: rows_of_one
  int64_t x_step = 0;
  int64_t y_step = 0;

  ExpertWeight w[2];  // same dtype
  bool gated = false;
  bool gelu = false;  // tanh form; else silu
  int experts = 1;
  int n = 0;
  int k = 0;
  int64_t rows = 0;  // capacity, of all experts
  int64_t rows_of_one = 0;
};

// Fails with kUnsupported for quantized weights beside unaligned rows of x.
ExpertShape expert_shape(const ExpertProduct& product);

// Lets the kernels use their shared memory: once per device, before any capture.
void prepare_expert_products();

// Capturable; allocates nothing and waits for nothing.
void expert_product(const ExpertProduct& product, const ExpertConfig& config,
                    LaunchContext context);

}  // namespace braid::cuda
