#pragma once

#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// y = f(a, b) element by element; rows and, where rows are few, columns are split over the team.
// Strides are in elements; y may be a or b.
struct BinaryParams {
  const float* a = nullptr;  // [T, C], rows a_stride apart
  const float* b = nullptr;  // [T, C], rows b_stride apart
  float* y = nullptr;        // [T, C], rows y_stride apart
  int64_t rows = 0;          // T
  int64_t cols = 0;          // C
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t y_stride = 0;
};

// y = a + b
void add(const BinaryParams& p, const Team& team, Isa isa = detected_isa());
// SwiGLU, a the gate and b the up projection: y = a / (1 + e^-a) * b
void silu_mul(const BinaryParams& p, const Team& team, Isa isa = detected_isa());
// GeGLU, a the gate: y = a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))) * b
void gelu_tanh_mul(const BinaryParams& p, const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
