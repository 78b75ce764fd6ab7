#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// Group norm over B pictures, whose pixels are rows: the channels of a picture are normalized in
// `groups` of neighbours, over all its pixels together:
//   y = (x - mean) / sqrt(variance + eps) * w[c] + b[c], then y / (1 + e^-y) with `silu`
// Inputs: x [B * P, C] of any float, w [C], b [C]. Output: [B * P, C] with the dtype of x.
struct GroupNormAttrs {
  int64_t batch = 1;  // B
  int64_t groups = 32;
  float eps = 1e-6f;
  bool silu = false;
  bool operator==(const GroupNormAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    if (batch != 1) f("batch", batch);
    f("groups", groups);
    f("eps", eps);
    if (silu) f("silu", silu);
  }
};

extern const OpDef kGroupNorm;

struct GroupNormWeights {
  ValueId w = kNoValue;
  ValueId b = kNoValue;
};
ValueId group_norm(Builder& b, ValueId x, const GroupNormWeights& weights,
                   const GroupNormAttrs& attrs);

}  // namespace braid::ops
