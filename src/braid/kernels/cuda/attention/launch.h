#pragma once

#include <cuda_runtime.h>

#include "braid/backend/cuda/check.h"
#include "braid/kernels/cuda/attention/plan.h"

namespace braid::cuda {

// Two counters; zeros before the first launch, and again after each.
constexpr size_t kAttentionWorkspaceBytes = 16;

// Runs the call on `stream`: no allocation, no synchronization, capturable; parameters and tensor
// maps (up to 17 KB) travel by value, so `params` may go when it returns. `workspace` is
// kAttentionWorkspaceBytes of device memory that no other launch in flight uses. The Hopper kernel
// is launched while the kernel before it in the stream ends (programmatic dependent launch) and
// waits for that one's memory before it touches any. It leaves `spare_sms` SMs to others. Fails as
// `verify` does, and with kUnsupported if no kernel is built for `config`.
void attention(const AttentionDesc& desc, const AttentionParams& params,
               const AttentionConfig& config, void* workspace, cudaStream_t stream,
               int spare_sms = 0);

// SMs that a launch must spare so that kernels of one warp that other streams launch meanwhile
// begin at once. The persistent kernels leave no room on theirs: of 384 threads with 168 registers
// each 256 registers are left in each quarter of an SM, which is 8 for each thread of a warp.
int spare_sms_for_one_warp(const AttentionConfig& config);

// What the current device is.
AttentionDevice attention_device();

}  // namespace braid::cuda
