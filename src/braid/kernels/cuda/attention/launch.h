#pragma once

#include <cuda_runtime.h>

#include "braid/backend/cuda/check.h"
#include "braid/kernels/cuda/attention/plan.h"

namespace braid::cuda {

// Two pairs of counters, which calls of a chain use by turns; zeros before the first launch, and
// again after each.
constexpr size_t kAttentionWorkspaceBytes = 16;

// Calls that carry one state on from each to the next, the last with `finalize`. They follow each
// other directly on one stream, with one workspace, and what they read besides the state was there
// before the first (or is waited for by events, which keep calls apart). Where the kernel and the
// shapes allow (staged states, one Q segment of lengths that the host knows), a call begins when
// the one before it runs out of tiles: its tiles wait for their states, not for a whole grid.
struct AttentionChain {
  // Device [slots]; zeros before the first call, and again after the last. The last of them counts
  // waits that ran out after 5 s: not zero if results are wrong.
  int32_t* ready = nullptr;
  int64_t slots = 0;  // at least attention_chain_slots

  // Kept by `attention`.
  int32_t calls = 0;  // that count themselves as ready
  int32_t units = 0;
  int32_t heads = 0;
};

int64_t attention_chain_slots(const AttentionDesc& desc, const AttentionParams& params);

// Runs the call on `stream`: no allocation, no synchronization, capturable; parameters and tensor
// maps (up to 18 KB) travel by value, so `params` may go when it returns. `workspace` is
// kAttentionWorkspaceBytes of device memory that no other launch in flight uses. The Hopper kernel
// is launched while the kernel before it in the stream ends (programmatic dependent launch) and
// waits for that one's memory before it touches any. It leaves `spare_sms` SMs to others. `chain`,
// if any, is that of the calls that this one belongs to. Fails as `verify` does, and with
// kUnsupported if no kernel is built for `config`.
void attention(const AttentionDesc& desc, const AttentionParams& params,
               const AttentionConfig& config, void* workspace, cudaStream_t stream,
               int spare_sms = 0, AttentionChain* chain = nullptr);

// The choice for a call that spares SMs, so that kernels of one warp that other streams launch
// meanwhile begin at once. The persistent kernels leave no room on theirs: of 384 threads with 168
// registers each 256 registers are left in each quarter of an SM, which is 8 for each thread of a
// warp.
struct SparingConfig {
  AttentionConfig config;
  int spare_sms = 0;
};
SparingConfig choose_beside_one_warp(const AttentionDesc& desc, const AttentionParams& params,
                                     AttentionDevice device);

// What the current device is.
AttentionDevice attention_device();

}  // namespace braid::cuda
