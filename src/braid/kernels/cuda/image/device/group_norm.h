#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/picture_rows.h"

namespace braid::cuda {

// The op group_norm, x read twice. Sums are of differences from a group's first value, in f32 over
// kGroupNormPixels pixels of a thread and in f64 beyond, in a fixed order.
struct GroupNormParams {
  TensorView x;               // f32 or bf16 [B * P, C]
  TensorView w, b;            // f32, f16 or bf16 [C]
  TensorView y;               // as x
  void* workspace = nullptr;  // device, group_norm_workspace()
  ops::GroupNormAttrs attrs;
};

// Both parts of a norm over pixels on several ranks: group_stats from x [n, C] to f32 [1, 2 *
// groups], and group_norm_by, with all ranks' `stats`.
struct GroupStatsParams {
  TensorView x;
  TensorView stats;
  void* workspace = nullptr;
  int64_t groups = 0;
};
constexpr int kMostNormRanks = 16;
struct GroupNormByParams {
  GroupNormParams norm;  // with a halo y has its rows, too
  TensorView stats;      // f32 [P, 2 * groups], P <= kMostNormRanks
  TensorView edges;      // as x, all ranks' edge_rows; absent without a halo
  const ops::GroupNormByAttrs& attrs;
};

int64_t group_norm_workspace(const ops::GroupNormAttrs& attrs, const Shape& x);

// Fails with kInvalidArgument or kUnsupported, naming the fault.
void group_norm(const GroupNormParams& params, LaunchContext context);
void group_stats(const GroupStatsParams& params, LaunchContext context);
void group_norm_by(const GroupNormByParams& params, LaunchContext context);

}  // namespace braid::cuda
