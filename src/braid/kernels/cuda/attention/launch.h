#pragma once

#include <cuda_runtime.h>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/early_words.h"
#include "braid/kernels/cuda/attention/plan.h"

namespace braid::cuda {

// Counters: zeros before the first launch, and again after each.
constexpr size_t kAttentionWorkspaceBytes = 12;

// Keys and queries that arrive while a call runs. Segments are of stages (KvSegment::stage,
// QSegment::stage); those of stage 0 are there before the call, and the others arrive in order.
// Where what an item needs next is not there the call leaves the item's sums, works on others, and
// comes back: the results are, bit for bit, those of the same call (and config) with all keys
// there. It ends when the last stage has arrived and holds its SMs until then, so what brings the
// keys must be copy engines, or kernels on spare SMs.
struct AttentionArrivals {
  // Device [3]. Whoever brings stage s writes s to the first after its keys: by
  // `continue_attention`, by a copy that follows theirs, or released at system scope. Zero before
  // the call, and again after it: nobody writes for the next one before this one has ended. The
  // second counts waits that ran out: results are wrong if it is not zero. To the third is added
  // how long CTAs had nothing to do for want of a stage, in microseconds, of all CTAs together. A
  // call without queries touches none.
  uint32_t* arrived = nullptr;
  // Device, 16-byte aligned: room for one item of each cluster of CTAs at least, for two in a call
  // that tells of early rows, and for as many as attention_sums_bytes says at most.
  void* sums = nullptr;
  size_t sums_bytes = 0;
  uint32_t timeout_ms = 5'000;  // of a wait for the next stage
  // Device, optional, of a call with early Q segments, which arrive after all others: who is told
  // once all their rows are written, as long as there are rows.
  EarlyWords* early = nullptr;
};

// One launch of a chain (AttentionDesc::chained): all items go through the keys of stages
// [begin, end); sums of those that see keys of later stages are left in `sums`, as they are in
// registers (f32), and rows whose last keys have come are written. A chain's launches have desc,
// params, config, `sums` and `words` in common and take all stages, in order. Nothing of later
// stages is read, and keys of earlier ones only where queries are of [begin, end). Results are, bit
// for bit, those of the same tiles in one call whose keys arrive, whatever stages a launch takes.
struct AttentionLink {
  int32_t begin = 0;
  int32_t end = 0;
  void* sums = nullptr;   // device, 16-byte aligned; nobody else's until the chain has ended
  size_t sums_bytes = 0;  // attention_sums_bytes, at least
  // Device, attention_link_words of them at least: zero before a chain, and again after its last
  // launch. A chain that has not come to its end leaves them to be zeroed.
  uint32_t* words = nullptr;
  size_t num_words = 0;
  // Not of the first: in the stream the chain's launch before comes right before this one, with
  // nothing between, so this one begins while that one ends, and takes an item up as soon as it is
  // left. Its keys were there before the chain began. Where a launch spares SMs, the next one
  // begins no earlier than it does without.
  bool follows = false;
};

// Runs the call on `stream`: no allocation, no synchronization, capturable; parameters and tensor
// maps (up to 25 KB) travel by value, so `params` may go when it returns. `workspace` is
// kAttentionWorkspaceBytes of device memory that no other launch in flight uses (a chain has its
// `words` instead). The Hopper kernel is launched while the kernel before it in the stream ends
// (programmatic dependent launch) and waits for that one's memory before it touches any, or, if it
// follows in a chain, before it ends. It takes at most `num_sms` SMs (0: all). `arrivals` go with a
// config of kArriving, `link` with one of kChained. Fails as `verify` does, and with kUnsupported
// if no kernel is built for `config`.
void attention(const AttentionDesc& desc, const AttentionParams& params,
               const AttentionConfig& config, void* workspace, cudaStream_t stream, int num_sms = 0,
               const AttentionArrivals* arrivals = nullptr, const AttentionLink* link = nullptr);

// A call of a chain whose first one is an `attention` with these arrivals, in flight: what is in
// `stream`, another one, before this has brought all stages up to `stage`. The sums are where that
// call has them, so this is a word that the stream writes: no launch, no SM, capturable. Between a
// chain's calls other streams may run what needs no SM of the call's (copies, kernels on spared
// SMs); where it needs them, a chain is of launches (AttentionLink). Fails with kInvalidArgument if
// `stage` is less than 1.
void continue_attention(const AttentionArrivals& arrivals, int32_t stage, cudaStream_t stream);

// The choice for a call that spares SMs of `device`, so that kernels of one warp that other streams
// launch meanwhile begin at once. The persistent kernels leave no room on theirs: of 384 threads
// with 168 registers each 256 registers are left in each quarter of an SM, which is 8 for each
// thread of a warp.
struct SparingConfig {
  AttentionConfig config;
  int num_sms = 0;  // that it may take
};
SparingConfig choose_beside_one_warp(const AttentionDesc& desc, const AttentionParams& params,
                                     AttentionDevice device);

// What the current device is, and what a rank has of one.
AttentionDevice attention_device();
AttentionDevice attention_device(const DeviceInfo& device);

}  // namespace braid::cuda
