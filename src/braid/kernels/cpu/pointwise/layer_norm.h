#pragma once

#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// y = norm(x) * w + b, then * (1 + scale) + shift, over groups of columns; ops/layer_norm.h says
// what it computes. All f32; strides in elements; what is null is left out. Row t takes the vectors
// scale + (t / rows_per_sequence) * modulation_stride, and shift likewise.
struct LayerNormParams {
  const float* x = nullptr;      // [T, C] packed
  const float* w = nullptr;      // [group]
  const float* b = nullptr;      // [group]
  const float* scale = nullptr;  // [B, C], rows modulation_stride apart
  const float* shift = nullptr;
  float* y = nullptr;  // [T, C] packed; may be x
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group = 0;
  int64_t rows_per_sequence = 1;
  int64_t modulation_stride = 0;
  float eps = 0;
};
void layer_norm(const LayerNormParams& p, const Team& team, Isa isa = detected_isa());

// y = a + gate * b.
struct GatedAddParams {
  const float* a = nullptr;  // [T, C] packed
  const float* b = nullptr;
  const float* gate = nullptr;  // [B, C], rows modulation_stride apart
  float* y = nullptr;           // may be a or b
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t rows_per_sequence = 1;
  int64_t modulation_stride = 0;
};
void gated_add(const GatedAddParams& p, const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
