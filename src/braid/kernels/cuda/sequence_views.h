#pragma once

#include "braid/backend/cuda/kernel_table.h"
#include "braid/kernels/cuda/attention/desc.h"

// Where rows and heads of values of sequences lie, for what binds segment attention and what binds
// the transfers to and from it.
namespace braid::cuda {

// A packed [B, L, heads, D] view, or [B, L, heads] with D = 1.
inline Strides strides_of(const TensorView& x) {
  const int64_t D = x.shape.rank() == 4 ? x.shape[3] : 1;
  return {.batch = x.shape[1] * x.shape[2] * D, .token = x.shape[2] * D, .head = D};
}

inline std::byte* at(const TensorView& x, int64_t row, int64_t head) {
  const Strides s = strides_of(x);
  return x.data + bytes_of(x.dtype, row * s.token + head * s.head);
}

// Sequences that a launch works on, of a value with room for some. A step of one micro-batch may be
// a graph, which serves every number up to the capacity: it takes all places, whose rows nobody
// reads beyond the live ones.
inline int64_t sequences_of(const OpCall& call, const TensorView& value, bool whole_batch) {
  return whole_batch ? value.shape[0] : call.extents().sequence;
}

}  // namespace braid::cuda
