#pragma once

#include <memory>
#include <vector>

#include "braid/engine/cuda/slot_sampler.h"
#include "braid/engine/requests/host_step_queue.h"

namespace braid::cuda {

// Runs a single step at a time, by the runner, as steps of changing ranks ask. Rank 0's device
// samples: tokens come to the host, and no logits but those that the host asks for.
class SampledStepQueue final : public HostStepQueue {
 public:
  // `backend` is rank 0's, and `sampler` lives on its device. `runner` outlives the queue.
  SampledStepQueue(Runner& runner, CudaBackend& backend, std::unique_ptr<SlotSampler> sampler,
                   int64_t slots);

  int64_t slots() const override { return slots_; }
  bool join(int32_t slot, const SlotSequence& sequence) override;
  void leave(int32_t slot) override { sampler_->leave(slot); }
  void allow(int32_t slot, std::span<const uint32_t> mask) override { sampler_->allow(slot, mask); }
  void put(const Batch& batch, std::span<const int32_t> row_slots) override;
  EndedStep take() override;

 private:
  Runner& runner_;
  CudaBackend& backend_;
  const std::unique_ptr<SlotSampler> sampler_;
  const int64_t slots_;
  const std::unique_ptr<DeviceMemory> no_ids_;  // the host knows all tokens
  uint64_t sampled_ = 0;                        // steps so far
  std::vector<SlotToken> tokens_;               // of the last step
  double sampling_seconds_ = 0;                 // behind the last step
};

}  // namespace braid::cuda
