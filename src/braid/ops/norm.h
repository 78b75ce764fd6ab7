#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// y = x / sqrt(mean(x^2) + eps) * w over groups of `group` columns: [T, C], [group] -> [T, C].
// group = C is the usual RMSNorm; group = D normalizes each head (QK-norm). x is a float of any
// width.
struct RmsNormAttrs {
  float eps = 1e-5f;
  int64_t group = 0;         // columns normalized together; w has as many elements
  DType dtype = DType::f32;  // of y
  bool operator==(const RmsNormAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("eps", eps);
    f("group", group);
    if (dtype != DType::f32) f("dtype", name(dtype));
  }
};

extern const OpDef kRmsNorm;
ValueId rms_norm(Builder& b, ValueId x, ValueId w, RmsNormAttrs attrs);

// The residual add: y = a + b, [T, C] each. y has the dtype of a; b may be narrower.
extern const OpDef kAdd;
ValueId add(Builder& b, ValueId x, ValueId y);

// Fused add and rms_norm: s = a + b, y = rms_norm(s, w): (a, b, w) -> (s, y). Attributes as
// rms_norm.
extern const OpDef kAddRmsNorm;

}  // namespace braid::ops
