#pragma once

#include <memory>
#include <span>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/engine/token_loop.h"
#include "braid/kernels/cuda/sampling/device/advance.h"
#include "braid/kernels/cuda/sampling/device/ring.h"
#include "braid/kernels/cuda/sampling/device/sample.h"

namespace braid::cuda {

// A rank's sampler of up to `capacity` sequences: their state on the GPU, their masks in pinned
// memory, and the ring that their tokens come back in. Made once; graphs keep its addresses. Every
// rank samples for itself: the same logits and state give the same tokens.
class DeviceSampler {
 public:
  static constexpr int kRing = 4;  // steps whose tokens are kept: at most two are in flight

  DeviceSampler(CudaBackend& backend, int64_t vocab, int64_t capacity);

  // Forgets the last sequences; returns when the state of the new ones is on the device, and
  // allocates nothing. The next tokens chosen are those of step `first`: a ring's steps are
  // numbered on over sequences.
  void begin(std::span<const LoopSlot> slots, int mask_deadline_ms, uint64_t first);

  // Enqueues the choice of tokens from `logits` f32 [S, V] on the device.
  void sample(const TensorView& logits, const LaunchContext& context) const;
  // Enqueues the inputs of the next step, with the tokens chosen last; `inputs` gives their
  // addresses.
  void advance(AdvanceParams inputs, const LaunchContext& context) const;

  // The same where the host writes the inputs of each step, with token id -1 - s in place of the
  // token that sequence s gets: enqueues the step's begin, after the upload of all inputs.
  void take(const TensorView& token_ids, const LaunchContext& context) const;
  // Waits until a step, and thus each step before, has read its inputs; the step before the first
  // has. Fails as wait() does.
  void wait_taken(uint64_t step) const;

  // Gives a step the mask of a sequence; the mask before was used.
  void allow(uint64_t step, size_t sequence, std::span<const uint32_t> mask);
  // Releases every step that waits for a mask.
  void release();

  // Waits for the tokens [S] of an enqueued step, and the tokens' SampleStatus bits [S]. Fails with
  // kDeadline, or with the device's error.
  void wait(uint64_t step, std::span<SampledToken> tokens, std::span<uint32_t> status) const;

 private:
  // Values set by the host between requests and used by the device: [n] of each.
  template <class T>
  class Mirror {
   public:
    Mirror(CudaBackend& backend, int64_t n)
        : host_(backend.allocate_staging(n * static_cast<int64_t>(sizeof(T)))),
          device_(backend.allocate(n * static_cast<int64_t>(sizeof(T)))) {}
    T* host() const { return reinterpret_cast<T*>(host_->data()); }
    T* device() const { return reinterpret_cast<T*>(device_->data()); }
    void upload(cudaStream_t stream) const;

   private:
    std::unique_ptr<DeviceMemory> host_, device_;
  };
  struct Counters {
    uint64_t step = 0;
    int64_t rows = 0;
  };

  uint64_t* mask_ready() const { return reinterpret_cast<uint64_t*>(mask_ready_->data()); }
  uint64_t* taken() const { return reinterpret_cast<uint64_t*>(taken_->data()); }
  uint32_t* masks() const { return reinterpret_cast<uint32_t*>(masks_->data()); }
  void count_prompts(std::span<const LoopSlot> slots) const;

  CudaBackend& backend_;
  const SamplingDesc desc_;
  const SamplingConfig config_;
  const size_t mask_words_;
  const Mirror<Counters> counters_;           // [1]
  const Mirror<SamplerParams> params_;        // [S]
  const Mirror<SamplerState> states_;         // [S]
  std::unique_ptr<DeviceMemory> tokens_;      // i32 [S]
  std::unique_ptr<DeviceMemory> overruns_;    // u32 [S]
  std::unique_ptr<DeviceMemory> counts_;      // u32 [S, V]
  std::unique_ptr<DeviceMemory> masks_;       // pinned u32 [S, mask_words_]
  std::unique_ptr<DeviceMemory> mask_ready_;  // pinned u64 [S]
  std::unique_ptr<DeviceMemory> ids_;         // pinned i32 [kStagedIds]: prompts on their way
  std::unique_ptr<DeviceMemory> taken_;       // pinned u64 of take()
  std::unique_ptr<DeviceMemory> workspace_;
  SampleRing ring_;
};

}  // namespace braid::cuda
