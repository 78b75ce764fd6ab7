#include "braid/engine/cuda/device_sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "braid/base/math.h"
#include "braid/engine/cuda/wait_for_device.h"
#include "braid/kernels/cuda/sampling/device/counts.h"
#include "braid/kernels/cuda/sampling/device/take_tokens.h"

namespace braid::cuda {
namespace {

constexpr int kMostAlternatives = 1000;
constexpr std::chrono::milliseconds kSlice{100};
constexpr int64_t kStagedIds = 16384;

SamplerParams to_device(const LoopSequence& sequence, int mask_deadline_ms) {
  const SamplingParams& p = sequence.sampling;
  SamplerParams params{.temperature = p.temperature,
                       .top_k = p.top_k,
                       .top_p = p.top_p,
                       .repetition_penalty = p.repetition_penalty,
                       .frequency_penalty = p.frequency_penalty,
                       .presence_penalty = p.presence_penalty,
                       .logprobs = p.logprobs};
  if (p.min_p > 0) params.log_min_p = std::log(p.min_p);
  if (sequence.mask) params.mask_wait_us = 1000 * static_cast<uint32_t>(mask_deadline_ms);
  return params;
}

}  // namespace

template <class T>
void DeviceSampler::Mirror<T>::upload(cudaStream_t stream) const {
  check_cuda(cudaMemcpyAsync(device(), host(), device_->bytes(), cudaMemcpyHostToDevice, stream),
             "a sampler");
}

DeviceSampler::DeviceSampler(CudaBackend& backend, int64_t vocab, int64_t capacity)
    : backend_(backend),
      desc_{.vocab = static_cast<int32_t>(vocab), .capacity = static_cast<int32_t>(capacity)},
      config_(choose(desc_, sampling_device(backend.device()))),
      mask_words_(ceil_div(vocab, 32)),
      counters_(backend, 1),
      params_(backend, capacity),
      states_(backend, capacity),
      tokens_(backend.allocate(capacity * 4)),
      overruns_(backend.allocate(capacity * 4)),
      counts_(backend.allocate(capacity * vocab * 4)),
      masks_(backend.allocate_staging(capacity * static_cast<int64_t>(mask_words_) * 4)),
      mask_ready_(backend.allocate_staging(capacity * 8)),
      ids_(backend.allocate_staging(kStagedIds * 4)),
      taken_(backend.allocate_staging(8)),
      workspace_(backend.allocate(static_cast<int64_t>(workspace_bytes(desc_, config_)))),
      ring_(kRing, desc_.capacity, kMostAlternatives) {
  prepare_sampling(desc_, config_);
}

void DeviceSampler::begin(std::span<const LoopSlot> slots, int mask_deadline_ms, uint64_t first) {
  const cudaStream_t stream = backend_.stream(Stream::compute);
  const size_t n = slots.size();
  BRAID_CHECK(n <= static_cast<size_t>(desc_.capacity), "{} sequences, a sampler of {}", n,
              desc_.capacity);
  BRAID_CHECK(0 < mask_deadline_ms && mask_deadline_ms <= 3'600'000);
  *counters_.host() = {.step = first, .rows = static_cast<int64_t>(n)};
  for (size_t s = 0; s < n; ++s) {
    params_.host()[s] = to_device(slots[s].sequence, mask_deadline_ms);
    states_.host()[s] = {slots[s].sequence.sampling.seed};
    mask_ready()[s] = 0;
  }
  counters_.upload(stream);
  params_.upload(stream);
  states_.upload(stream);
  count_prompts(slots);
  check_cuda(cudaStreamSynchronize(stream), "a sampler");
  *taken() = first;
}

// Kernels read the ids in staging memory; a sequence without repetition penalties needs none.
void DeviceSampler::count_prompts(std::span<const LoopSlot> slots) const {
  const LaunchContext context{backend_.stream(Stream::compute)};
  auto* ids = reinterpret_cast<int32_t*>(ids_->data());
  auto* counts = reinterpret_cast<uint32_t*>(counts_->data());
  int64_t staged = 0;
  for (const auto& [sequence, generated] : slots) {
    clear_counts(counts, desc_.vocab, context);
    std::span<const int32_t> left = sequence.prompt;
    if (sequence.sampling.repetition_penalty == 1) left = {};
    while (!left.empty()) {
      if (staged == kStagedIds) {
        check_cuda(cudaStreamSynchronize(context.stream), "a sampler");
        staged = 0;
      }
      const auto part =
          left.first(static_cast<size_t>(std::min<int64_t>(std::ssize(left), kStagedIds - staged)));
      std::ranges::copy(part, ids + staged);
      count_tokens(
          {.counts = counts, .vocab = desc_.vocab, .ids = ids + staged, .n = std::ssize(part)},
          context);
      staged += std::ssize(part);
      left = left.subspan(part.size());
    }
    counts += desc_.vocab;
  }
}

void DeviceSampler::sample(const TensorView& logits, const LaunchContext& context) const {
  SampleCall call{.desc = desc_,
                  .logits = logits.as<const float>(),
                  .logits_stride = logits.cols(),
                  .rows = &counters_.device()->rows,
                  .params = params_.device(),
                  .states = states_.device(),
                  .counts = reinterpret_cast<uint32_t*>(counts_->data()),
                  .step = &counters_.device()->step,
                  .mask = masks(),
                  .mask_ready = mask_ready(),
                  .token_ids = reinterpret_cast<int32_t*>(tokens_->data()),
                  .workspace = reinterpret_cast<float*>(workspace_->data())};
  ring_.attach(call);
  braid::cuda::sample(call, config_, context);
}

void DeviceSampler::advance(AdvanceParams inputs, const LaunchContext& context) const {
  inputs.sampled = reinterpret_cast<const int32_t*>(tokens_->data());
  inputs.overrun = reinterpret_cast<uint32_t*>(overruns_->data());
  inputs.step = &counters_.device()->step;
  inputs.rows = &counters_.device()->rows;
  inputs.capacity = desc_.capacity;
  braid::cuda::advance(inputs, context);
}

void DeviceSampler::take(const TensorView& token_ids, const LaunchContext& context) const {
  take_tokens({.sampled = reinterpret_cast<const int32_t*>(tokens_->data()),
               .capacity = desc_.capacity,
               .token_ids = token_ids.as<int32_t>(),
               .tokens = token_ids.shape.elems(),
               .step = &counters_.device()->step,
               .taken = reinterpret_cast<uint2*>(taken_->data())},
              context);
}

void DeviceSampler::wait_taken(uint64_t step) const {
  wait_for_device(
      backend_, [&] { return std::atomic_ref(*taken()).load(std::memory_order_acquire) >= step; },
      "the begin of a step");
}

void DeviceSampler::allow(uint64_t step, size_t sequence, std::span<const uint32_t> mask) {
  BRAID_CHECK(mask.size() == mask_words_, "a mask of {} words for {} tokens", mask.size(),
              desc_.vocab);
  std::ranges::copy(mask, masks() + sequence * mask_words_);
  std::atomic_ref(mask_ready()[sequence]).store(step + 1, std::memory_order_release);
}

void DeviceSampler::release() {
  for (int32_t s = 0; s < desc_.capacity; ++s) {
    std::atomic_ref(mask_ready()[s])
        .store(std::numeric_limits<uint64_t>::max(), std::memory_order_release);
  }
}

void DeviceSampler::wait(uint64_t step, std::span<SampledToken> tokens,
                         std::span<uint32_t> status) const {
  const auto end = std::chrono::steady_clock::now() + kDeviceDeadline;
  for (size_t s = 0; s < tokens.size(); ++s) {
    const auto row = static_cast<int32_t>(s);
    while (!ring_.wait(step, row, kSlice)) {
      backend_.check();
      if (std::chrono::steady_clock::now() > end) {
        fail(ErrorCode::kDeadline, "cuda:{}: no token of step {} within {} s", backend_.device().id,
             step, kDeviceDeadline.count());
      }
    }
    // A kernel's expired wait gives a token, too, from void logits.
    if (s == 0) backend_.check_job();
    const SampleRecord& record = ring_.record(step, row);
    status[s] = record.status;
    tokens[s].id = record.id;
    if (params_.host()[s].logprobs < 0) continue;
    tokens[s].logprob = record.logprob;
    tokens[s].top.clear();
    for (const SampleTop& top : ring_.tops(step, row)) {
      tokens[s].top.push_back({top.id, top.logprob});
    }
  }
}

}  // namespace braid::cuda
