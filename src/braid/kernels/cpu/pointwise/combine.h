#pragma once

#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// y[t] = sum over j of weight[t, j] x[place[t, j]] + sigmoid(gate[t]) shared[t], in the order of j,
// over the j with a place of 0 or more;
// rows and, where rows are few, columns are split over the team. Strides are in elements.
struct CombineParams {
  const float* x = nullptr;        // [R, C], rows x_stride apart
  const float* weight = nullptr;   // [T, k]
  const int32_t* place = nullptr;  // [T, k]
  const float* shared = nullptr;   // [T, C], rows shared_stride apart, or null
  const float* gate = nullptr;     // [T], or null: 1 in place of the gate's sigmoid
  float* y = nullptr;              // [T, C], rows y_stride apart
  int64_t rows = 0;                // T
  int64_t k = 0;
  int64_t cols = 0;  // C
  int64_t x_stride = 0, shared_stride = 0, y_stride = 0;
};
void combine(const CombineParams& p, const Team& team, Isa isa = detected_isa());

// y = factor * x for the first summand, else y + factor * x; [n] each.
void add_scaled(const float* x, float factor, float* y, int64_t n, bool first,
                Isa isa = detected_isa());

}  // namespace braid::cpu
