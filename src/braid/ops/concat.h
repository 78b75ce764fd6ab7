#pragma once

#include <vector>

#include "braid/program/builder.h"

// Moves that join, cut and reshape rows and columns; nothing is computed.
namespace braid::ops {

// For B sequences, one after another: each sequence's rows of every part. x_i [B * L_i, C] -> [B *
// sum L_i, C].
struct SequenceRowsAttrs {
  int64_t batch = 1;  // B
  bool operator==(const SequenceRowsAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("batch", batch);
  }
};
extern const OpDef kConcatRows;
ValueId concat_rows(Builder& b, const std::vector<ValueId>& parts, int64_t batch);

// Rows begin .. begin + rows - 1 of each sequence: x [B * L, C] -> [B * rows, C].
struct TakeRowsAttrs {
  int64_t batch = 1;  // B
  int64_t begin = 0;
  int64_t rows = 0;
  bool operator==(const TakeRowsAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("batch", batch);
    f("begin", begin);
    f("rows", rows);
  }
};
extern const OpDef kTakeRows;
ValueId take_rows(Builder& b, ValueId x, const TakeRowsAttrs& attrs);

// x_i [n, C_i] -> [n, sum C_i].
extern const OpDef kConcatColumns;
ValueId concat_columns(Builder& b, const std::vector<ValueId>& parts);

// Rows with another number of columns, the values in the same order: x [n, C] -> [n C / columns,
// columns]. N sequences side by side in columns, [L, N * C], are rows of C columns, in which token
// t of sequence i is row t N + i. Nothing moves between computed values (schedule/value_views.h).
struct ReshapeRowsAttrs {
  int64_t columns = 0;
  bool operator==(const ReshapeRowsAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("columns", columns);
  }
};
extern const OpDef kReshapeRows;
ValueId reshape_rows(Builder& b, ValueId x, int64_t columns);

}  // namespace braid::ops
