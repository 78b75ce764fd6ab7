#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/sampling/config.h"
#include "braid/kernels/cuda/sampling/params.h"

namespace braid::cuda {

// A step of sampling. Pointers are to device memory unless said otherwise and fixed at capture; S
// is the capacity, V the vocabulary.
struct SampleCall {
  SamplingDesc desc;
  const float* logits = nullptr;   // [S, V], rows logits_stride apart
  int64_t logits_stride = 0;       // elements
  const int64_t* rows = nullptr;   // live rows <= S; the rest stay untouched
  const int32_t* slots = nullptr;  // [S]: row -> slot; -1: no token for this row. Null: the row
  const SamplerParams* params = nullptr;  // [slots]
  SamplerState* states = nullptr;         // [slots]
  uint32_t* counts = nullptr;             // [slots, V]; null: no sequence has penalties
  // [slots]: each slot's row in `counts`; -1: none, its sequence has no penalty. Null: row =
  // slot.
  const int32_t* counts_rows = nullptr;
  const SampleBias* biases = nullptr;  // [slots, kMaxBiases]; null: none
  const uint64_t* step = nullptr;      // the number of this step; `advance` adds 1
  // Masks of allowed ids, made by the host while the step runs; null: none. Row s of `mask` counts
  // once mask_ready[s] is at least step + 1; s is a slot.
  const uint32_t* mask = nullptr;        // pinned host [slots, ceil(V / 32)]: id i is bit i % 32
  const uint64_t* mask_ready = nullptr;  // pinned host [slots]
  int32_t* token_ids = nullptr;          // [S]
  int32_t* slot_tokens = nullptr;        // [slots]: the same by slot. Optional
  SampleRecord* records = nullptr;  // pinned host [ring, S]; the step's are [step % ring]. Optional
  SampleTop* tops = nullptr;        // pinned host [ring, S, max_logprobs], most likely first
  int32_t ring = 1;
  int32_t ring_rows = 0;       // rows of a step in the ring; 0: S
  int32_t max_logprobs = 0;    // alternatives that fit; a larger request gets this number
  float* workspace = nullptr;  // workspace_bytes() unless the config is staged
};

// Allows the kernel its shared memory and cluster; once for each config, outside capture.
void prepare_sampling(const SamplingDesc& desc, const SamplingConfig& config);

// For each live row s: token_ids[s] ~ softmax(penalized logits[s] / temperature), cut to the top-k
// tokens and of these to the top-p ones, after min-p; the most likely where temperature is 0. The
// token is counted and reported. The same logits, parameters and state give the same bits in every
// configuration. One kernel; capturable; it waits for nothing but the masks asked for.
void sample(const SampleCall& call, const SamplingConfig& config, LaunchContext context);

// The current device, and a rank's share of a device.
SamplingDevice sampling_device();
SamplingDevice sampling_device(const DeviceInfo& device);

}  // namespace braid::cuda
