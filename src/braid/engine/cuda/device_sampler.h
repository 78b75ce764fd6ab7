#pragma once

#include <memory>
#include <span>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/engine/sampling.h"
#include "braid/kernels/cuda/sampling/device/advance.h"
#include "braid/kernels/cuda/sampling/device/ring.h"
#include "braid/kernels/cuda/sampling/device/sample.h"

namespace braid::cuda {

// A rank's sampler of one sequence: its state on the GPU, and the ring that its tokens come back
// in. Made once; graphs keep its addresses. Every rank samples for itself: the same logits and
// state give the same token.
class DeviceSampler {
 public:
  static constexpr int kRing = 4;  // steps whose tokens are kept: at most two are in flight

  DeviceSampler(CudaBackend& backend, int64_t vocab);

  // Forgets the last sequence; returns when its state is on the device. The next token chosen is
  // that of step `first`: a ring's steps are numbered on over sequences.
  void begin(const SamplingParams& params, std::span<const int32_t> prompt, uint64_t first);

  // Enqueues the choice of a token from `logits` f32 [1, V] on the device.
  void sample(const TensorView& logits, const LaunchContext& context) const;
  // Enqueues the inputs of the next step, which has the token chosen last; `inputs` says where they
  // are.
  void advance(AdvanceParams inputs, const LaunchContext& context) const;

  // The token of a step, which must have been enqueued. Fails with kDeadline, or as the device did.
  SampledToken wait(uint64_t step) const;

 private:
  // What lives on the device, in this order.
  struct State {
    SamplerParams params;
    SamplerState state;
    uint64_t step = 0;
    int64_t rows = 1;
    int32_t token = 0;
    uint32_t overrun = 0;
  };

  State* device() const { return reinterpret_cast<State*>(state_->data()); }

  CudaBackend& backend_;
  const SamplingDesc desc_;
  const SamplingConfig config_;
  std::unique_ptr<DeviceMemory> staging_;  // State
  std::unique_ptr<DeviceMemory> state_;    // State
  std::unique_ptr<DeviceMemory> counts_;   // u32 [V]
  std::unique_ptr<DeviceMemory> workspace_;
  SampleRing ring_;
  bool logprobs_ = false;
};

}  // namespace braid::cuda
