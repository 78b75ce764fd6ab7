#pragma once

#include "braid/ops/linear.h"
#include "braid/ops/norm.h"

namespace braid::ops {

// Fused rms_norm or add_rms_norm and the linear or gated_linear that alone reads its result:
//   s = a + b,  x = s / sqrt(mean(s^2) + eps) * w rounded to norm.dtype,  y_i = x W_i^T + b_i
// or y = act(x W_0^T + b_0) * (x W_1^T + b_1). Inputs: a [T, K], b [T, K] or absent, w [K], W_0 ..
// W_{n-1} [N_i, K], b_0 .. b_{n-1} or absent. Outputs: s where there is a b; y_0 .. y_{n-1}, or y.
// For few tokens, where a pass over x costs less than a launch. Appears after lowering only.
struct NormLinearAttrs {
  RmsNormAttrs norm;
  LinearAttrs linear;  // gated: of the pair
  bool gated = false;
  Activation activation = Activation::silu;
  bool operator==(const NormLinearAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    norm.fields(f);
    linear.fields(f);
    if (gated) f("activation", to_string(activation));
  }
};

extern const OpDef kNormLinear;

}  // namespace braid::ops
