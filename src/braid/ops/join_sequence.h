#pragma once

#include <vector>

#include "braid/program/builder.h"

// Joins a rank's rows of each sequence part into a single value for sequence-parallel attention in
// a network without a KV cache, and cuts the value again. Moves alone; a single part needs no move.
namespace braid::ops {

// x_i [n_i, H * D] -> [sequence = 1, rows, H, D]: the rows of each part, one part after another. A
// part may be a cache's pages [NB, BS, H, D]: NB * BS rows.
// Rows behind, up to `rows`, are undefined.
struct JoinSequenceAttrs {
  int64_t head_dim = 0;
  int64_t rows = 0;
  bool operator==(const JoinSequenceAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("head_dim", head_dim);
    f("rows", rows);
  }
};
extern const OpDef kJoinSequence;

// The reverse: o [sequence = 1, rows, H, D] -> [n_i, H * D] for each part.
struct CutSequenceAttrs {
  std::vector<int64_t> rows;  // n_i
  BatchAxis axis = BatchAxis::none;
  bool operator==(const CutSequenceAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("parts", rows.size());
  }
};
extern const OpDef kCutSequence;

// A join or cut with a single part, or reshaped rows: output and input share their place.
bool keeps_place(const Op& op);

}  // namespace braid::ops
