#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// T5's relative position bias: bias[h, i, j] = table[bucket(j - i), h]. Half of the buckets are for
// keys behind the query (j > i). Of each half, the first half is one bucket per distance; the rest
// grow with the logarithm of the distance up to `max_distance`, and the last takes all beyond.
// Input: table [buckets, H] of any float. Output: f32 [H, L, L].
// Source: Raffel et al., 2020, section 2.1.
struct RelativeBiasAttrs {
  int64_t length = 0;  // L
  int64_t max_distance = 128;
  bool operator==(const RelativeBiasAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("length", length);
    f("max_distance", max_distance);
  }
};

extern const OpDef kRelativeBias;
ValueId relative_bias(Builder& b, ValueId table, const RelativeBiasAttrs& attrs);

// Bucket for a key `distance` places behind its query (negative: before).
int64_t relative_bucket(int64_t distance, int64_t buckets, int64_t max_distance);

}  // namespace braid::ops
