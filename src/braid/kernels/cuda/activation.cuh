#pragma once

#include "braid/kernels/cuda/ptx/mma.h"

namespace braid::cuda {

// x / (1 + e^-z): silu with z = x, or gelu in its tanh form, as (1 + tanh z / 2) / 2 is 1 / (1 +
// e^-z).
__device__ inline float activate(bool gelu, float x) {
  const float z = gelu ? 1.5957691216f * (x + 0.044715f * x * x * x) : x;
  return x * ptx::reciprocal(1 + ptx::exp2_approx(-ptx::kLog2E * z));
}

}  // namespace braid::cuda
