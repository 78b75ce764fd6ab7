#pragma once

#include <memory>
#include <span>
#include <vector>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/engine/requests/slot_table.h"
#include "braid/engine/requests/step_queue.h"
#include "braid/kernels/cuda/sampling/device/begin_step.h"
#include "braid/kernels/cuda/sampling/device/ring.h"
#include "braid/kernels/cuda/sampling/device/sample.h"

namespace braid::cuda {

// A rank's sampler of sequences that come and go. A sequence's state from token to token is a
// slot's row in device memory; the stream writes a row when a sequence takes the slot, between the
// steps before and after. Counts of the vocabulary exist for sequences with penalties alone. Made
// once: graphs keep its addresses. Steps are numbered from 0, alike on all ranks.
class SlotSampler {
 public:
  static constexpr int kRing = 4;  // steps whose tokens are kept: at most two are under way

  // `rows`: logits rows in a step. `context`: tokens per sequence.
  SlotSampler(CudaBackend& backend, int64_t vocab, int64_t slots, int64_t rows, int64_t context);

  // Called by the host between steps. False if a sequence wants more than is free: too many biases,
  // or counts that others hold.
  bool join(int32_t slot, const SlotSequence& sequence);
  void leave(int32_t slot);
  // The mask, or none if empty, of a slot's next token, before write_step(); no step under way
  // samples for the slot.
  void allow(int32_t slot, std::span<const uint32_t> mask) const;
  // Called by the host before it puts in a step, once the step before is taken up. Enqueues the
  // kernels that count tokens of joining sequences.
  void write_step(int64_t tokens, std::span<const int32_t> row_slots);
  // Call once for each number of logits rows, outside of capture.
  void prepare(int64_t rows) const;

  // Work before and after a step's launches, alike in every step of an executor.
  void begin(const TensorView& token_ids, const LaunchContext& context) const;
  void sample(const TensorView& logits, const LaunchContext& context) const;

  // Waits until a step has read the host's input; true at once for a step before 0.
  void wait_taken(uint64_t steps) const;
  // Waits for the tokens of a step's rows, in order; `row_slots` as put in, and rows without a slot
  // are left out. Replaces `tokens`. Both waits fail with kDeadline, or with the device's error.
  void wait(uint64_t step, std::span<const int32_t> row_slots,
            std::vector<SlotToken>& tokens) const;

 private:
  struct Join {
    SlotJoin join;
    std::vector<SampleBias> biases;
    std::vector<int32_t> prompt, generated;  // to be counted
  };

  template <class T>
  static T* as(const std::unique_ptr<DeviceMemory>& memory) {
    return reinterpret_cast<T*>(memory->data());
  }
  // `used`: of ids_in_ by this step.
  void count(const Join& join, int64_t& used) const;
  SamplingConfig config_for(int64_t rows) const;

  CudaBackend& backend_;
  const int64_t vocab_, slots_, rows_, staged_;
  const int64_t mask_words_;
  SlotTable counts_taken_;
  std::vector<int32_t> counts_row_;  // [slots]; -1: none
  std::vector<Join> joins_;          // before the next step
  std::unique_ptr<DeviceMemory> sampling_in_, row_slots_in_, joins_in_, biases_in_, taken_, ids_in_,
      masks_, mask_ready_;
  std::unique_ptr<DeviceMemory> step_, live_rows_, row_slots_, params_, states_, counts_rows_,
      biases_, slot_tokens_, row_tokens_, counts_, workspace_;
  SampleRing ring_;
};

}  // namespace braid::cuda
