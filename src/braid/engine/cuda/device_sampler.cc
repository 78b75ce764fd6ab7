#include "braid/engine/cuda/device_sampler.h"

#include <cmath>
#include <cstring>

#include "braid/kernels/cuda/sampling/device/counts.h"

namespace braid::cuda {
namespace {

constexpr int kMostAlternatives = 1000;
constexpr std::chrono::milliseconds kSlice{100};
constexpr std::chrono::seconds kDeadline{120};

}  // namespace

DeviceSampler::DeviceSampler(CudaBackend& backend, int64_t vocab)
    : backend_(backend),
      desc_{.vocab = static_cast<int32_t>(vocab), .capacity = 1},
      config_(choose(desc_, sampling_device())),
      staging_(backend.allocate_staging(sizeof(State))),
      state_(backend.allocate(sizeof(State))),
      counts_(backend.allocate(vocab * static_cast<int64_t>(sizeof(uint32_t)))),
      workspace_(backend.allocate(static_cast<int64_t>(workspace_bytes(desc_, config_)))),
      ring_(kRing, 1, kMostAlternatives) {
  prepare_sampling(desc_, config_);
}

void DeviceSampler::begin(const SamplingParams& p, std::span<const int32_t> prompt,
                          uint64_t first) {
  const cudaStream_t stream = backend_.stream(Stream::compute);
  State state{.params = {.temperature = p.temperature,
                         .top_k = p.top_k,
                         .top_p = p.top_p,
                         .repetition_penalty = p.repetition_penalty,
                         .frequency_penalty = p.frequency_penalty,
                         .presence_penalty = p.presence_penalty,
                         .logprobs = p.logprobs},
              .state = {p.seed},
              .step = first};
  if (p.min_p > 0) state.params.log_min_p = std::log(p.min_p);
  logprobs_ = p.logprobs >= 0;
  std::memcpy(staging_->data(), &state, sizeof(state));
  const auto copy = [&](void* to, const void* from, size_t bytes) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "a sampler");
  };
  copy(state_->data(), staging_->data(), sizeof(state));
  auto* counts = reinterpret_cast<uint32_t*>(counts_->data());
  clear_counts(counts, desc_.vocab, {stream});
  const auto ids = backend_.allocate(static_cast<int64_t>(prompt.size_bytes()));
  copy(ids->data(), prompt.data(), prompt.size_bytes());
  count_tokens({.counts = counts,
                .vocab = desc_.vocab,
                .ids = reinterpret_cast<const int32_t*>(ids->data()),
                .n = std::ssize(prompt)},
               {stream});
  check_cuda(cudaStreamSynchronize(stream), "a sampler");
}

void DeviceSampler::sample(const TensorView& logits, const LaunchContext& context) const {
  SampleCall call{.desc = desc_,
                  .logits = logits.as<const float>(),
                  .logits_stride = logits.cols(),
                  .rows = &device()->rows,
                  .params = &device()->params,
                  .states = &device()->state,
                  .counts = reinterpret_cast<uint32_t*>(counts_->data()),
                  .step = &device()->step,
                  .token_ids = &device()->token,
                  .workspace = reinterpret_cast<float*>(workspace_->data())};
  ring_.attach(call);
  braid::cuda::sample(call, config_, context);
}

void DeviceSampler::advance(AdvanceParams inputs, const LaunchContext& context) const {
  inputs.sampled = &device()->token;
  inputs.overrun = &device()->overrun;
  inputs.step = &device()->step;
  inputs.rows = &device()->rows;
  inputs.capacity = 1;
  braid::cuda::advance(inputs, context);
}

SampledToken DeviceSampler::wait(uint64_t step) const {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!ring_.wait(step, 0, kSlice)) {
    backend_.check();
    if (std::chrono::steady_clock::now() > end) {
      fail(ErrorCode::kDeadline, "cuda:{}: no token of step {} within {} s", backend_.device().id,
           step, kDeadline.count());
    }
  }
  const SampleRecord& record = ring_.record(step, 0);
  SampledToken token{.id = record.id};
  if (!logprobs_) return token;
  token.logprob = record.logprob;
  for (const SampleTop& top : ring_.tops(step, 0)) token.top.push_back({top.id, top.logprob});
  return token;
}

}  // namespace braid::cuda
