#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/linear/device/skinny.h"

// The end of products for few tokens: bias, gate, store.
namespace braid::cuda {

__device__ inline float load_float(const void* p, DType dtype, int64_t i) {
  if (dtype == DType::f32) return static_cast<const float*>(p)[i];
  if (dtype == DType::f16) return __half2float(static_cast<const __half*>(p)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
}

__device__ inline float load_bias(const SkinnyPart& part, int column) {
  if (part.bias == nullptr) return 0;
  return load_float(part.bias, part.bias_dtype, column);
}

__device__ inline void store_y(const SkinnyPart& part, int64_t token, int column, float y) {
  const int64_t at = token * part.y_stride + column;
  if (part.y_dtype == DType::f32) {
    static_cast<float*>(part.y)[at] = y;
  } else {
    static_cast<__nv_bfloat16*>(part.y)[at] = __float2bfloat16_rn(y);
  }
}

}  // namespace braid::cuda
