#pragma once

#include "braid/kernels/cuda/decode/device/states.h"

namespace braid::cuda {

// merge_states as MergeStatesParams has it.
struct MergeArgs {
  const float* states;     // [parts, n, heads, D + 2]
  const float* own;        // [N, heads, D + 2] or null
  const int64_t* queries;  // null: all
  int rows;                // N
  int merged;              // n
  int heads;
  int D;
  int parts;
  bool finish;
};

inline MergeArgs merge_args(const MergeStatesParams& p) {
  const int64_t heads = p.states.shape[2], D = p.states.shape[3] - 2;
  return {.states = p.states.as<const float>(),
          .own = p.own,
          .queries = p.queries,
          .rows = static_cast<int>(p.out.shape.elems() / (heads * (p.finish ? D : D + 2))),
          .merged = static_cast<int>(p.states.shape[1] / p.parts),
          .heads = static_cast<int>(heads),
          .D = static_cast<int>(D),
          .parts = p.parts,
          .finish = p.finish};
}

}  // namespace braid::cuda
