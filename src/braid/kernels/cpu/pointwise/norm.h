#pragma once

#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// y = x / sqrt(mean(x^2) + eps) * w over each group of `group` consecutive columns (group = C for a
// layer norm, D for a norm of each head). Rows are split over the team; a row's result does not
// depend on the team. Strides are in elements.
struct RmsNormParams {
  const float* x = nullptr;  // [T, C], rows x_stride apart
  const float* w = nullptr;  // [group]
  float* y = nullptr;        // [T, C], rows y_stride apart; may be x
  int64_t rows = 0;          // T
  int64_t cols = 0;          // C, a multiple of group
  int64_t group = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  float eps = 0;
};
void rms_norm(const RmsNormParams& p, const Team& team, Isa isa = detected_isa());

// s = x + r; y = norm(s) as above with group = C.
struct AddRmsNormParams {
  const float* x = nullptr;  // [T, C], rows x_stride apart
  const float* r = nullptr;  // [T, C], rows r_stride apart
  const float* w = nullptr;  // [C]
  float* s = nullptr;        // [T, C], rows s_stride apart; may be x or r
  float* y = nullptr;        // [T, C], rows y_stride apart; may be x or r if s is not
  int64_t rows = 0;          // T
  int64_t cols = 0;          // C
  int64_t x_stride = 0;
  int64_t r_stride = 0;
  int64_t s_stride = 0;
  int64_t y_stride = 0;
  float eps = 0;
};
void add_rms_norm(const AddRmsNormParams& p, const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
