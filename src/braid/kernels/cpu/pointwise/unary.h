#pragma once

#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// y = f(x) for n elements in a row; y may be x. ops/unary.h has the formulas.
struct UnaryParams {
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]
  int64_t n = 0;
};
void silu(const UnaryParams& p, const Team& team, Isa isa = detected_isa());
void gelu_tanh(const UnaryParams& p, const Team& team, Isa isa = detected_isa());
void quick_gelu(const UnaryParams& p, const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
