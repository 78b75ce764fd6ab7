#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// The op combine: y[t] = sum over j of weight[t, j] x[place[t, j]] in that order, then the shared
// expert times sigmoid(gate[t]). In f32, rounded once. x, shared and y are bf16.
struct CombineParams {
  const float* weight = nullptr;   // [T, k]
  const int32_t* place = nullptr;  // [T, k]
  TensorView x;                    // [R, C]
  TensorView shared;               // [T, C], or absent
  const float* gate = nullptr;     // [T], or null
  TensorView y;                    // [T, C]
  int k = 1;
  const int64_t* rows = nullptr;  // device: live tokens; null: T
};

void combine(const CombineParams& params, LaunchContext context);

}  // namespace braid::cuda
