#pragma once

#include <cstdint>

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/linear/skinny_config.h"

// The linear layers of decode: y_i = x W_i^T + b_i for few tokens, for any format and alignment of
// weights. A launch (of at most 8 tokens) reads each weight once.
namespace braid::ops {
enum class Activation : uint8_t;  // ops/linear.h, which nvcc does not take
}

namespace braid::cuda {

struct SkinnyPart {
  const void* w = nullptr;  // [n, k] in SkinnyParams::w_dtype, rows of whole blocks
  DType dtype = DType::bf16;
  int64_t row_bytes = 0;       // from row to row
  const void* bias = nullptr;  // [n] or null
  DType bias_dtype = DType::f32;
  void* y = nullptr;            // [m, n]
  DType y_dtype = DType::bf16;  // or f32
  int64_t y_stride = 0;         // elements
  int n = 0;
};

// The product's input in place of x: (a + b) / sqrt(mean((a + b)^2) + eps) * w.
struct SkinnyNorm {
  const float* a = nullptr;  // [m, k]
  int64_t a_stride = 0;
  const void* b = nullptr;  // bf16 [m, k] or null
  int64_t b_stride = 0;
  const void* w = nullptr;  // [k]
  DType w_dtype = DType::f32;
  float eps = 1e-5f;
  float* sum = nullptr;  // f32 [m, k] receives a + b; null, or apart from a
  int64_t sum_stride = 0;
};

// All memory is the device's and the caller's. Weights may be read up to the next multiple of 16
// bytes past their end.
struct SkinnyParams {
  const void* x = nullptr;      // [m, k]; unused with a norm
  DType x_dtype = DType::bf16;  // or f32, rounded to bf16
  int64_t x_stride = 0;         // elements
  int k = 0;
  int m = 0;                      // capacity
  const int64_t* rows = nullptr;  // device, live tokens <= m; null means m. Others stay untouched.
  SkinnyPart parts[3];
  int num_parts = 1;
  // Two parts of equal n and dtype: y = act(x W_0^T + b_0) * (x W_1^T + b_1) into parts[0].y.
  bool gated = false;
  ops::Activation activation{};  // silu
  bool normed = false;
  SkinnyNorm norm;
  // With one part: y = residual + x W^T + b; f32 [m, n], may be y itself.
  const float* residual = nullptr;
  int64_t residual_stride = 0;
};

// The choice's view of a call; all parts share a dtype.
SkinnyShape skinny_shape(const SkinnyParams& params);

// Lets the kernels use their shared memory: once per device, before any capture.
void prepare_skinny_linear();

// Products are exact in bf16 x bf16 with f32 sums: x, f32 weights and f16 weights are rounded to
// bf16; integers of block formats are exact, and scales multiply in f32. The config fixes the order
// of sums. Fails with kInvalidArgument on shapes and dtypes that do not fit together, with
// kUnsupported on parts of several dtypes. Capturable; with context.pdl weights stream in before
// the end of the launch ahead.
void skinny_linear(const SkinnyParams& params, const SkinnyConfig& config, LaunchContext context);

}  // namespace braid::cuda
