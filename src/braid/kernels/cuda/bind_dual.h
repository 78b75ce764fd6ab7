#pragma once

#include "braid/kernels/cuda/bind.h"

// Attention over divided tokens with dual chunks (ops/dual_chunks.h), by calls of the same op
// without dual chunks, for queries as they meet each chunk of keys.
namespace braid::cuda {

// Binds a call of the op without dual chunks.
using BindPlain = std::function<BoundKernel(const LaunchArgs& args)>;

// The op segment_attention. The inputs' states have a row for each query.
int64_t dual_segments_bytes(const Op& op, TypeList in);  // of workspace
BoundKernel bind_dual_segments(const LaunchArgs& args, const BindPlain& bind);

// The op attention_state.
int64_t dual_states_bytes(const Op& op, TypeList in);  // of workspace
BoundKernel bind_dual_states(const LaunchArgs& args, const BindPlain& bind);

}  // namespace braid::cuda
