#pragma once

#include "braid/backend/cuda/kernel_table.h"
#include "braid/kernels/cuda/attention/desc.h"

// Places of rows and heads in sequence values, for the bindings of segment attention and its
// transfers.
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

// Sequences of a launch, over a value with room for some. A step with a single micro-batch may be a
// graph for every number up to the capacity: such a launch takes all places, and nobody reads rows
// beyond the live sequences.
inline int64_t sequences_of(const OpCall& call, const TensorView& value, bool whole_batch) {
  return whole_batch ? value.shape[0] : call.extents().sequence;
}

}  // namespace braid::cuda
