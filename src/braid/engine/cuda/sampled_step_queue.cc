#include "braid/engine/cuda/sampled_step_queue.h"

#include <algorithm>

#include "braid/backend/cuda/device.h"
#include "braid/base/clock.h"

namespace braid::cuda {

SampledStepQueue::SampledStepQueue(Runner& runner, CudaBackend& backend,
                                   std::unique_ptr<SlotSampler> sampler, int64_t slots)
    : HostStepQueue(runner),
      runner_(runner),
      backend_(backend),
      sampler_(std::move(sampler)),
      slots_(slots),
      no_ids_(backend.allocate(sizeof(int32_t))) {}

bool SampledStepQueue::join(int32_t slot, const SlotSequence& sequence) {
  const bool joined = sampler_->join(slot, sequence);
  if (!joined) leave(slot);
  return joined;
}

void SampledStepQueue::put(const Batch& batch, std::span<const int32_t> row_slots) {
  HostStepQueue::put(batch, row_slots);
  const double begin = steady_seconds();
  tokens_.clear();
  sampling_seconds_ = 0;
  if (std::ranges::none_of(row_slots, [](int32_t slot) { return slot >= 0; })) return;
  const DeviceScope scope(backend_.device().id);
  const LaunchContext context{backend_.stream(Stream::compute)};
  const TensorView logits = runner_.device_logits();
  sampler_->prepare(logits.rows());
  sampler_->write_step(0, row_slots);
  sampler_->begin(make_view(no_ids_->data(), DType::i32, {1}), context);
  sampler_->sample(logits, context);
  sampler_->wait(sampled_++, row_slots, tokens_);
  sampling_seconds_ = steady_seconds() - begin;
}

EndedStep SampledStepQueue::take() {
  EndedStep step = HostStepQueue::take();
  step.tokens = tokens_;
  step.seconds += sampling_seconds_;
  step.waited += sampling_seconds_;
  return step;
}

}  // namespace braid::cuda
