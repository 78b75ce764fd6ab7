#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// Group norm as ops/group_norm.h defines it.
struct GroupNormParams {
  const float* x = nullptr;  // [B * P, C]
  const float* w = nullptr;  // [C]
  const float* b = nullptr;  // [C]
  float* y = nullptr;        // [B * P, C]; may be x
  int64_t batch = 0;         // B
  int64_t pixels = 0;        // P, of a picture
  int64_t channels = 0;      // C
  int64_t groups = 0;
  float eps = 0;
  bool silu = false;
};

int64_t group_norm_scratch_bytes(int64_t channels, int threads);

// Every thread of the team calls it with the same arguments. Two passes over x. Sums are f32 over
// 64 pixels, less the picture's first pixel so that a large mean costs no digits, then f64.
void group_norm(const GroupNormParams& p, std::byte* scratch, const Team& team,
                Isa isa = detected_isa());

// In two parts, for a picture with pixels on several ranks (ops/picture_rows.h): the statistics [2
// * groups] of x, without w, b and y; and the norm by given moments.
struct GroupMoments {
  double mean = 0, variance = 0;
};
void group_stats(const GroupNormParams& p, float* stats, std::byte* scratch, const Team& team,
                 Isa isa = detected_isa());
void group_norm_by(const GroupNormParams& p,
                   const std::function<GroupMoments(int64_t group)>& moments, std::byte* scratch,
                   const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
