#pragma once

#include "braid/backend/cuda/kernel_table.h"
#include "braid/kernels/cuda/decode/device/states.h"

namespace braid::cuda {

// The op merge_states. `queries` are merge_queries(): parameters are made anew at each launch.
inline const int64_t* merge_queries(const LaunchArgs& args) {
  return args.call.attrs<ops::MergeStatesAttrs>().sequence ? nullptr : args.live(BatchAxis::shard);
}

inline MergeStatesParams merge_params(const OpCall& call, const int64_t* queries) {
  MergeStatesParams p{.states = call.in[0],
                      .out = call.out[0],
                      .queries = queries,
                      .parts = call.attrs<ops::MergeStatesAttrs>().parts};
  // The kernel's row i of a rank's own is row i of the results.
  const int64_t behind = p.states.shape[1] - p.states.shape[1] / p.parts;
  if (call.in.size() > 1) {
    p.own = call.in[1].row_as<const float>(behind * p.states.shape[2]);
  }
  return p;
}

}  // namespace braid::cuda
