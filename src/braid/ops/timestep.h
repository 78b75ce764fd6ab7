#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// The sinusoid of a timestep: t f32 [n] -> f32 [n, dim], with half = dim / 2 frequencies
// max_period^(-i / (half - shift)); cosines first, or sines. An odd column at the end is zero.
// Every intermediate is rounded to f32, as the models were trained.
struct TimestepEmbeddingAttrs {
  int64_t dim = 256;
  bool cosines_first = true;
  float shift = 0;
  float max_period = 10000;
  bool operator==(const TimestepEmbeddingAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("dim", dim);
    f("cosines_first", cosines_first);
    f("shift", shift);
    f("max_period", max_period);
  }
};

extern const OpDef kTimestepEmbedding;
ValueId timestep_embedding(Builder& b, ValueId t, const TimestepEmbeddingAttrs& attrs);

}  // namespace braid::ops
