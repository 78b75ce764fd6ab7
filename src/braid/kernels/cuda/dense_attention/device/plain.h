#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/dense_attention/config.h"
#include "braid/program/op.h"

namespace braid::cuda {

// The op dense_attention with sums in f32 and no tensor cores: f32, f16 or bf16 [B * L_i, H * D],
// packed, a bias and key lengths. Fails as `choose` does.
void plain_dense_attention(const OpCall& call, LaunchContext context);

// Allows the kernel for a dtype and head its shared memory; once, outside capture.
void load_plain_dense_attention(DType dtype, int64_t head_dim);

// P = softmax(scale * S) over rows of `keys` numbers, `stride` apart, a multiple of
// 4: S f32, at a multiple of 16 bytes; P bf16, at a multiple of 8.
struct SoftmaxRows {
  const float* scores = nullptr;  // [rows, stride]
  void* weights = nullptr;        // bf16 [rows, stride]; columns from `keys` on become 0
  int64_t rows = 0, keys = 0, stride = 0;
  float scale = 1;
};
void softmax_rows(const SoftmaxRows& params, const LaunchContext& context);

// y[d, t] = x[t, d]: bf16 [rows, cols] to [cols, stride]; columns from `rows` on become 0.
struct Transpose {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
};
void transpose(const Transpose& params, const LaunchContext& context);

}  // namespace braid::cuda
