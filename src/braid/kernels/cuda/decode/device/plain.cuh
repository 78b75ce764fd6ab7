#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "braid/kernels/cuda/decode/device/plain.h"

// Shared parts of the plain attention kernels: a warp per query and head sees key after key.
namespace braid::cuda {

constexpr int kPlainLanes = 32;
constexpr int kPlainWarps = 4;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// A query and the running softmax over earlier keys; lane i holds columns i, i + 32, ...
struct PlainQuery {
  static constexpr int kEach = kMaxPlainHeadDim / kPlainLanes;

  float q[kEach];
  float sum[kEach];
  float m = -INFINITY;
  float l = 0.f;

  // q * k, in every lane.
  template <class T>
  __device__ float dot(const T* k, int D, int lane) const {
    float score = 0.f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int d = lane + i * kPlainLanes;
      if (d < D) score += q[i] * to_float(k[d]);
    }
#pragma unroll
    for (int mask = kPlainLanes / 2; mask > 0; mask /= 2) {
      score += __shfl_xor_sync(0xffffffff, score, mask);
    }
    return score;
  }

  // Takes in a key with this score.
  template <class T>
  __device__ void add(float score, const T* v, int D, int lane) {
    const float top = fmaxf(m, score);
    const float keep = expf(m - top);
    const float p = expf(score - top);
    m = top;
    l = l * keep + p;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int d = lane + i * kPlainLanes;
      if (d < D) sum[i] = sum[i] * keep + p * to_float(v[d]);
    }
  }
};

}  // namespace braid::cuda
