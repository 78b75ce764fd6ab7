#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// A modulation: vectors that a diffusion transformer derives from the timestep, to be added to or
// multiplied with the rows of each sequence. A value f32 [B, M] holds the vectors of all blocks
// side by side; ops name their first column. Rows of a value [n, C] belong to B sequences one after
// another, n / B each.

// y = (x - mean) / sqrt(variance + eps) over groups of `group` columns, then, for inputs that are
// present, * w + b and * (1 + scale) + shift. Inputs: x [n, C] in any float, w [group], b [group],
// modulation [B, M]; all but x are optional. y has x's shape.
constexpr int64_t kNoColumn = -1;

struct LayerNormAttrs {
  float eps = 1e-6f;
  int64_t group = 0;                 // columns normalized together: C, or D for each head
  int64_t scale_column = kNoColumn;  // C columns of the modulation from here on
  int64_t shift_column = kNoColumn;
  DType dtype = DType::f32;  // of y
  bool operator==(const LayerNormAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("eps", eps);
    f("group", group);
    if (scale_column != kNoColumn) f("scale_column", scale_column);
    if (shift_column != kNoColumn) f("shift_column", shift_column);
    if (dtype != DType::f32) f("dtype", name(dtype));
  }
};

struct Affine {
  ValueId w = kNoValue;
  ValueId b = kNoValue;
};

extern const OpDef kLayerNorm;  // (x, w, b, modulation) -> y
ValueId layer_norm(Builder& b, ValueId x, Affine affine, const LayerNormAttrs& attrs,
                   ValueId modulation = kNoValue);

// The gated residual: y = a + gate * b. Inputs: a, b [n, C] of any float, modulation f32 [B, M].
// y has a's type.
struct GatedAddAttrs {
  int64_t gate_column = 0;
  bool operator==(const GatedAddAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("gate_column", gate_column);
  }
};

extern const OpDef kGatedAdd;
ValueId gated_add(Builder& b, ValueId x, ValueId y, ValueId modulation, int64_t gate_column);

}  // namespace braid::ops
