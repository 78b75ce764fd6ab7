#pragma once

#include <cuda_runtime.h>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/early_words.h"
#include "braid/kernels/cuda/attention/plan.h"

namespace braid::cuda {

// Counters: zeros before the first launch, and again after each.
constexpr size_t kAttentionWorkspaceBytes = 12;

// Keys and queries that arrive during a call. Each segment has a stage (KvSegment::stage,
// QSegment::stage): stage 0 is present before the call, and later stages arrive in order. The call
// leaves the sums of an item without its next keys, works on other items, and comes back. Results
// are, bit for bit, those of the same call (and config) with all keys present. The call ends after
// the last stage and holds its SMs until then: keys must come by copy engines, or by kernels on
// spare SMs.
struct AttentionArrivals {
  // Device [3]. The sender of stage s writes s to the first word after the stage's keys: by
  // `continue_attention`, by a later copy, or released at system scope. The word is zero before and
  // after the call: nobody may write for the next call before this call has ended. The second word
  // counts waits past the deadline: other than zero means wrong results. The third word adds up the
  // microseconds that CTAs had nothing to do for want of a stage, over all CTAs. A call without
  // queries touches no word.
  uint32_t* arrived = nullptr;
  // Device, 16-byte aligned: room for at least an item of each cluster of CTAs, two in a call that
  // signals early rows, and at most attention_sums_bytes.
  void* sums = nullptr;
  size_t sums_bytes = 0;
  uint32_t timeout_ms = 5'000;  // for a wait for the next stage
  // Device, optional, for a call with early Q segments, the last to arrive: words to write after
  // all early rows, if there are rows.
  EarlyWords* early = nullptr;
};

// A launch of a chain (AttentionDesc::chained): all items take the keys of stages [begin, end).
// Items with keys in later stages leave their sums in `sums`, in register layout (f32); rows with
// their last keys are written. A chain's launches share desc, params, config, `sums` and `words`,
// and take all stages, in order. A launch reads nothing of later stages, and keys of earlier stages
// only for queries of [begin, end). Results are, bit for bit, those of the same tiles in a single
// call with arriving keys, however stages are cut into launches.
struct AttentionLink {
  int32_t begin = 0;
  int32_t end = 0;
  void* sums = nullptr;   // device, 16-byte aligned; nobody else's until the chain has ended
  size_t sums_bytes = 0;  // attention_sums_bytes, at least
  // Device, at least attention_link_words: zero before a chain, and again after the last launch.
  // The caller zeroes the words of an unfinished chain.
  uint32_t* words = nullptr;
  size_t num_words = 0;
  // For a launch that directly follows the chain's launch before in its stream. This launch begins
  // during its predecessor and takes an item up as soon as the item is left. Its keys were present
  // before the chain began. After a launch that spares SMs, this launch begins no earlier than
  // without `follows`.
  bool follows = false;
};

// Runs the call on `stream`: no allocation, no synchronization, capturable. Parameters and tensor
// maps (up to 25 KB) travel by value, so `params` may go afterwards. `workspace` has
// kAttentionWorkspaceBytes of device memory, used by no other launch in flight (a chain has `words`
// instead). The Hopper kernel starts while the stream's previous kernel ends (programmatic
// dependent launch), and waits for the previous kernel's memory before any access, or, with
// `follows`, before its own end. The call takes at most `num_sms` SMs (0: all). `arrivals` go with
// a config of kArriving, `link` with a config of kChained. Fails as `verify` does, and with
// kUnsupported without a kernel for `config`.
void attention(const AttentionDesc& desc, const AttentionParams& params,
               const AttentionConfig& config, void* workspace, cudaStream_t stream, int num_sms = 0,
               const AttentionArrivals* arrivals = nullptr, const AttentionLink* link = nullptr);

// Continues an `attention` call with these arrivals, in flight: the work before this point in
// `stream` (another stream) has brought all stages up to `stage`. The call keeps its sums, so
// continuing means writing a word: no launch, no SM, capturable. Between continuations other
// streams may run work without the call's SMs (copies, kernels on spared SMs); work that needs
// these SMs calls for a chain of launches (AttentionLink). Fails with kInvalidArgument if `stage`
// is less than 1.
void continue_attention(const AttentionArrivals& arrivals, int32_t stage, cudaStream_t stream);

// Choice for a call that spares SMs of `device`, so that one-warp kernels on other streams
// begin at once. Persistent kernels leave no room on their SMs: 384 threads with 168
// registers each leave 256 registers in each quarter of an SM, 8 for each thread of a
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
