#pragma once

#include <cuda_runtime.h>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/early_words.h"
#include "braid/kernels/cuda/attention/plan.h"

namespace braid::cuda {

// Counters: zeros before the first launch, and again after each.
constexpr size_t kAttentionWorkspaceBytes = 12;

// Keys and queries that arrive during a call. Each segment has a stage (KvTensor::stage,
// QTensor::stage): stage 0 is present before the call, and later stages arrive in order. The call
// leaves the sums of an item without its next keys, works on other items, and comes back. Results
// are, bit for bit, those of the same call (and config) with all keys present. The call ends after
// the last stage and holds its SMs until then: keys must come by copy engines, or by kernels on
// spare SMs.
struct AttentionArrivals {
  // Device [3]. The sender of stage s writes s to the first word after the stage's keys: by a
  // write of the stream (put_words), by a later copy, or released at system scope. The word is zero
  // before and after the call: nobody may write for the next call before this call has ended. The
  // second word counts waits past the deadline: other than zero means wrong results. The third word
  // adds up the microseconds that CTAs had nothing to do for want of a stage, over all CTAs. A call
  // without queries touches no word.
  uint32_t* arrived = nullptr;
  // Device, 16-byte aligned: room for an item per cluster of CTAs at least, for two in a call that
  // signals early rows, and at most attention_sums_bytes.
  void* sums = nullptr;
  size_t sums_bytes = 0;
  uint32_t timeout_ms = 5'000;  // for a wait for the next stage
  // Device, optional, for a call with early Q segments, the last to arrive: words to write after
  // all early rows, if there are rows.
  EarlyWords* early = nullptr;
};

// Runs the call on `stream`: no allocation, no synchronization, capturable. Parameters and tensor
// maps (up to 25 KB) travel by value, so `params` may go afterwards. `workspace` has
// kAttentionWorkspaceBytes of device memory, used by no other launch in flight. The Hopper kernel
// starts while the stream's previous kernel ends (programmatic dependent launch), and waits for the
// previous kernel's memory before any access. The call takes at most `num_sms` SMs (0: all).
// `arrivals` go with a config of kArriving. Fails as `verify` does, and with kUnsupported without a
// kernel for `config`.
void attention(const AttentionDesc& desc, const AttentionParams& params,
               const AttentionConfig& config, void* workspace, cudaStream_t stream, int num_sms = 0,
               const AttentionArrivals* arrivals = nullptr);

// Choice for a call that spares SMs on `device`, so one-warp kernels on other streams
// begin at once. Persistent kernels leave no room on their SMs: 384 threads with 168
// registers each leave 256 registers in each quarter of an SM, 8 for each thread in a
// warp.
struct SparingConfig {
  AttentionConfig config;
  int num_sms = 0;  // SMs for the call
};
SparingConfig choose_beside_one_warp(const AttentionDesc& desc, const AttentionParams& params,
                                     AttentionDevice device);

// The current device, and a rank's share of a device.
AttentionDevice attention_device();
AttentionDevice attention_device(const DeviceInfo& device);

}  // namespace braid::cuda
