#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// Rotates pairs of neighbouring columns by angles from a table, for positions with several axes
// (time, height, width). Inputs: x [B * L, H * D] in any float, table f32 [R, rotary_dim]: cosine
// and sine of each pair side by side.
// Rows first .. first + R - 1 in each of the B sequences take
// the table's rows. Other rows, and a head's columns from rotary_dim on, stay the same:
//   y[2i] = x[2i] cos - x[2i + 1] sin,  y[2i + 1] = x[2i + 1] cos + x[2i] sin
struct RopeTableAttrs {
  int64_t head_dim = 0;
  int64_t batch = 1;  // B
  int64_t first = 0;
  bool operator==(const RopeTableAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("head_dim", head_dim);
    if (batch != 1) f("batch", batch);
    if (first != 0) f("first", first);
  }
};

extern const OpDef kRopeTable;
ValueId rope_table(Builder& b, ValueId x, ValueId table, const RopeTableAttrs& attrs);

// An axis of positions: `dim` columns in a head, position_i * theta^(-2 i / dim) for pair i.
struct RopeAxis {
  int64_t dim = 0;
  std::vector<double> positions;  // [R]
};
// The table for several axes side by side: [R, sum of dims]. Angles are computed in f64.
std::vector<float> make_rope_table(const std::vector<RopeAxis>& axes, double theta);

}  // namespace braid::ops
