#pragma once

#include "braid/program/builder.h"

// Communication fused with neighbouring computation. These ops appear after lowering, when a
// strategy replaces a run of ops (ops/fusion.h); each has the bits of the replaced ops. The `P`
// ranks of a mesh axis take part.
namespace braid::ops {

// y = sum_p (x_p W_p^T [+ b]), the same on every rank; ranks whose bias is elsewhere add none.
// Inputs: x [T, K] of any float, W [N, K] of any dtype, b [N] or absent. Output: y [T, N].
struct LinearAllReduceAttrs {
  std::string axis;  // mesh axis, "tp"
  int ranks = 1;     // P
  bool bias_elsewhere = false;
  DType dtype = DType::f32;  // of y
  bool operator==(const LinearAllReduceAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("axis", axis);
    f("ranks", ranks);
    if (bias_elsewhere) f("bias_elsewhere", bias_elsewhere);
    if (dtype != DType::f32) f("dtype", name(dtype));
  }
};
extern const OpDef kLinearAllReduce;

struct ReduceNormAttrs {
  std::string axis;
  int ranks = 1;
  float eps = 1e-5f;
  DType dtype = DType::f32;  // of y
  bool operator==(const ReduceNormAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("axis", axis);
    f("ranks", ranks);
    f("eps", eps);
    if (dtype != DType::f32) f("dtype", name(dtype));
  }
};

// s = r + sum_p x_p;  y = s / sqrt(mean(s^2) + eps) * w, both the same on every rank.
// Inputs: x [T, C] of any float, r f32 [T, C], w [C]. Outputs: s f32 [T, C], y [T, C].
extern const OpDef kAllReduceAddRmsNorm;

// s_q = r_q + sum_p x_p[rows of q];  y[rows of q] = s_q / sqrt(mean(s_q^2) + eps) * w
// The residual stays divided over tokens (ops/comm.h says how), its norm is whole on every rank
// (TokenWeave, section 3.3).
// Inputs: x [token = T, C] of any float, r f32 [shard = ceil(T / P), C], w [C].
// Outputs: s f32 [shard = ceil(T / P), C], y [token = T, C].
extern const OpDef kReduceScatterAddRmsNormAllGather;

}  // namespace braid::ops
