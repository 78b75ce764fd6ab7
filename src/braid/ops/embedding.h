#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// y[t] = scale * table[ids[t]]: i32 [T], any dtype [V, C] -> f32 [T, C].
struct EmbeddingAttrs {
  float scale = 1;
  DType dtype = DType::f32;  // of the activations
  bool operator==(const EmbeddingAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("scale", scale);
    f("dtype", name(dtype));
  }
};

extern const OpDef kEmbedding;
ValueId embedding(Builder& b, ValueId ids, ValueId table, EmbeddingAttrs attrs = {});

// y[i] = x[rows[i]]: [T, C], i32 [R] -> [R, C].
extern const OpDef kGatherRows;
ValueId gather_rows(Builder& b, ValueId x, ValueId rows);

}  // namespace braid::ops
