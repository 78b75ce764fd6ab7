#pragma once

#include <cuda_runtime.h>

#include "braid/kernels/cuda/attention/plan.h"

namespace braid::cuda {

// kResource where the call ran out of something, else a broken invariant; names `what`.
void check_cuda(cudaError_t error, const char* what);

// Two counters; zeros before the first launch, and again after each.
constexpr size_t kAttentionWorkspaceBytes = 16;

// Everything launch needs, made ahead of time: the plan and (Hopper) the tensor maps. Holds copies
// of the params' pointers, not of what they point to.
// Runs the call on `stream`: no allocation, no synchronization, capturable. `workspace` is
// kAttentionWorkspaceBytes of device memory that no other launch in flight uses.
void attention(const AttentionDesc& desc, const AttentionParams& params,
               const AttentionConfig& config, void* workspace, cudaStream_t stream);

// What the current device is.
AttentionDevice attention_device();

}  // namespace braid::cuda
