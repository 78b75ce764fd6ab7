#include "braid/engine/cuda/slot_sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/engine/cuda/wait_for_device.h"
#include "braid/kernels/cuda/sampling/device/counts.h"

namespace braid::cuda {
namespace {

constexpr int kMostAlternatives = 1000;
constexpr int64_t kMostCounted = 128;      // sequences with penalties at once
constexpr int64_t kMostJoinBiases = 8192;  // all sequences that join in the same step

SamplerParams params_of(const SamplingParams& p) {
  SamplerParams params{.temperature = p.temperature,
                       .top_k = p.top_k,
                       .top_p = p.top_p,
                       .repetition_penalty = p.repetition_penalty,
                       .frequency_penalty = p.frequency_penalty,
                       .presence_penalty = p.presence_penalty,
                       .logprobs = p.logprobs};
  if (p.min_p > 0) params.log_min_p = std::log(p.min_p);
  return params;
}

bool has_penalty(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.frequency_penalty != 0 || p.presence_penalty != 0;
}

std::vector<SampleBias> biases_of(const SlotSequence& sequence, int64_t vocab) {
  std::vector<SampleBias> biases;
  const AnswerRequest& request = sequence.request;
  for (const auto& [id, add] : request.sampling.logit_bias) {
    if (id < vocab) biases.push_back({.id = id, .add = add});
  }
  if (request.min_tokens > std::ssize(sequence.generated)) {
    for (const std::span<const int32_t> list :
         {sequence.ends, std::span<const int32_t>(request.stop_ids)}) {
      for (const int32_t id : list) {
        biases.push_back({.id = id,
                          .add = -std::numeric_limits<float>::infinity(),
                          .until = static_cast<uint32_t>(request.min_tokens)});
      }
    }
  }
  return biases;
}

}  // namespace

SlotSampler::SlotSampler(CudaBackend& backend, int64_t vocab, int64_t slots, int64_t rows,
                         int64_t context)
    : backend_(backend),
      vocab_(vocab),
      slots_(slots),
      rows_(rows),
      staged_(std::max<int64_t>(context, 1 << 14)),
      mask_words_(ceil_div(vocab, 32)),
      counts_taken_(std::min(slots, kMostCounted)),
      counts_row_(slots, -1),
      sampling_in_(backend.allocate_staging(sizeof(StepSampling))),
      row_slots_in_(backend.allocate_staging(rows * 4)),
      joins_in_(backend.allocate_staging(slots * static_cast<int64_t>(sizeof(SlotJoin)))),
      biases_in_(
          backend.allocate_staging(kMostJoinBiases * static_cast<int64_t>(sizeof(SampleBias)))),
      taken_(backend.allocate_staging(8)),
      ids_in_(backend.allocate_staging(staged_ * 4)),
      masks_(backend.allocate_staging(slots * mask_words_ * 4)),
      mask_ready_(backend.allocate_staging(slots * 8)),
      step_(backend.allocate(8)),
      live_rows_(backend.allocate(8)),
      row_slots_(backend.allocate(rows * 4)),
      params_(backend.allocate(slots * static_cast<int64_t>(sizeof(SamplerParams)))),
      states_(backend.allocate(slots * static_cast<int64_t>(sizeof(SamplerState)))),
      counts_rows_(backend.allocate(slots * 4)),
      biases_(backend.allocate(slots * kMaxBiases * static_cast<int64_t>(sizeof(SampleBias)))),
      slot_tokens_(backend.allocate(slots * 4)),
      row_tokens_(backend.allocate(rows * 4)),
      counts_(backend.allocate(std::min(slots, kMostCounted) * vocab * 4)),
      ring_(kRing, static_cast<int32_t>(rows), kMostAlternatives) {
  const DeviceScope scope(backend.device().id);
  const SamplingDesc desc{static_cast<int32_t>(vocab), static_cast<int32_t>(rows)};
  workspace_ = backend.allocate(static_cast<int64_t>(workspace_bytes(desc, {})));
  // Each step begins with its masks, so no kernel waits.
  std::fill_n(as<uint64_t>(mask_ready_), slots, std::numeric_limits<uint64_t>::max());
  // begin() adds 1: the first step is 0.
  check_cuda(cudaMemset(step_->data(), 0xff, 8), "a sampler");
  // Kernels that sequences with penalties need are loaded here.
  auto* counts = as<uint32_t>(counts_);
  clear_counts(counts, static_cast<int32_t>(vocab), {backend.stream(Stream::compute)});
  count_tokens(
      {.counts = counts, .vocab = static_cast<int32_t>(vocab), .ids = as<int32_t>(ids_in_), .n = 1},
      {backend.stream(Stream::compute)});
  check_cuda(cudaStreamSynchronize(backend.stream(Stream::compute)), "a sampler");
}

bool SlotSampler::join(int32_t slot, const SlotSequence& sequence) {
  const AnswerRequest& request = sequence.request;
  const SamplingParams& p = request.sampling;
  Join join{.join = {.slot = slot, .params = params_of(p)}};
  if (request.mask) join.join.params.mask_wait_us = 1;
  join.biases = biases_of(sequence, vocab_);
  int64_t before = 0;
  for (const Join& other : joins_) before += std::ssize(other.biases);
  if (std::ssize(join.biases) > kMaxBiases || before + std::ssize(join.biases) > kMostJoinBiases) {
    return false;
  }
  const size_t s = slot;
  if (has_penalty(p)) {
    counts_row_[s] = counts_taken_.take();
    if (counts_row_[s] < 0) return false;
    join.join.counts_row = counts_row_[s];
    if (p.repetition_penalty != 1) join.prompt = request.prompt;
    join.generated.assign(sequence.generated.begin(), sequence.generated.end());
  }
  const auto generated = static_cast<uint32_t>(sequence.generated.size());
  const uint64_t drawn = p.temperature > 0 ? generated : 0;
  join.join.params.num_biases = static_cast<int32_t>(join.biases.size());
  join.join.state = {.random = p.seed + kRandomStep * drawn, .generated = generated};
  joins_.push_back(std::move(join));
  return true;
}

void SlotSampler::leave(int32_t slot) {
  int32_t& row = counts_row_[slot];
  if (row >= 0) counts_taken_.give_back(row);
  row = -1;
  // A sequence that ends before its first step writes nothing.
  std::erase_if(joins_, [&](const Join& join) { return join.join.slot == slot; });
}

void SlotSampler::allow(int32_t slot, std::span<const uint32_t> mask) const {
  uint32_t* const words = as<uint32_t>(masks_) + slot * mask_words_;
  if (mask.empty()) {
    std::fill_n(words, mask_words_, ~uint32_t{0});
    return;
  }
  BRAID_CHECK(std::ssize(mask) == mask_words_, "a mask of {} words for {} tokens", mask.size(),
              vocab_);
  std::ranges::copy(mask, words);
}

void SlotSampler::write_step(int64_t tokens, std::span<const int32_t> row_slots) {
  BRAID_CHECK(std::ssize(row_slots) <= rows_, "{} rows of logits, a sampler of {}",
              row_slots.size(), rows_);
  *as<StepSampling>(sampling_in_) = {.tokens = tokens,
                                     .rows = std::ssize(row_slots),
                                     .joins = static_cast<int32_t>(joins_.size())};
  std::ranges::copy(row_slots, as<int32_t>(row_slots_in_));
  int32_t first = 0;
  int64_t used = 0;
  for (size_t j = 0; j < joins_.size(); ++j) {
    joins_[j].join.first_bias = first;
    as<SlotJoin>(joins_in_)[j] = joins_[j].join;
    std::ranges::copy(joins_[j].biases, as<SampleBias>(biases_in_) + first);
    first += static_cast<int32_t>(joins_[j].biases.size());
    count(joins_[j], used);
  }
  joins_.clear();
}

// Kernels read the ids from staging memory until the step is taken up.
void SlotSampler::count(const Join& join, int64_t& used) const {
  if (join.join.counts_row < 0) return;
  const LaunchContext context{backend_.stream(Stream::compute)};
  auto* counts = as<uint32_t>(counts_) + join.join.counts_row * vocab_;
  clear_counts(counts, static_cast<int32_t>(vocab_), context);
  for (const bool generated : {false, true}) {
    const std::vector<int32_t>& ids = generated ? join.generated : join.prompt;
    if (used + std::ssize(ids) > staged_) {
      // Long prompts with penalties take turns if they begin in the same step.
      check_cuda(cudaStreamSynchronize(context.stream), "a sampler");
      used = 0;
    }
    int32_t* const staged = as<int32_t>(ids_in_) + used;
    std::ranges::copy(ids, staged);
    count_tokens({.counts = counts,
                  .vocab = static_cast<int32_t>(vocab_),
                  .ids = staged,
                  .n = std::ssize(ids),
                  .generated = generated},
                 context);
    used += std::ssize(ids);
  }
}

void SlotSampler::begin(const TensorView& token_ids, const LaunchContext& context) const {
  begin_step({.sampling = as<const StepSampling>(sampling_in_),
              .row_slots_in = as<const int32_t>(row_slots_in_),
              .joins = as<const SlotJoin>(joins_in_),
              .biases_in = as<const SampleBias>(biases_in_),
              .taken = as<uint2>(taken_),
              .step = as<uint64_t>(step_),
              .rows = as<int64_t>(live_rows_),
              .row_slots = as<int32_t>(row_slots_),
              .params = as<SamplerParams>(params_),
              .states = as<SamplerState>(states_),
              .counts_rows = as<int32_t>(counts_rows_),
              .biases = as<SampleBias>(biases_),
              .slot_tokens = as<const int32_t>(slot_tokens_),
              .slots = static_cast<int32_t>(slots_),
              .token_ids = token_ids.as<int32_t>()},
             context);
}

SamplingConfig SlotSampler::config_for(int64_t rows) const {
  return choose({static_cast<int32_t>(vocab_), static_cast<int32_t>(rows)},
                sampling_device(backend_.device()));
}

void SlotSampler::prepare(int64_t rows) const {
  prepare_sampling({static_cast<int32_t>(vocab_), static_cast<int32_t>(rows)}, config_for(rows));
}

void SlotSampler::sample(const TensorView& logits, const LaunchContext& context) const {
  const SamplingConfig config = config_for(logits.rows());
  SampleCall call{.desc = {static_cast<int32_t>(vocab_), static_cast<int32_t>(logits.rows())},
                  .logits = logits.as<const float>(),
                  .logits_stride = logits.cols(),
                  .rows = as<const int64_t>(live_rows_),
                  .slots = as<const int32_t>(row_slots_),
                  .params = as<const SamplerParams>(params_),
                  .states = as<SamplerState>(states_),
                  .counts = as<uint32_t>(counts_),
                  .counts_rows = as<const int32_t>(counts_rows_),
                  .biases = as<const SampleBias>(biases_),
                  .step = as<const uint64_t>(step_),
                  .mask = as<const uint32_t>(masks_),
                  .mask_ready = as<const uint64_t>(mask_ready_),
                  .token_ids = as<int32_t>(row_tokens_),
                  .slot_tokens = as<int32_t>(slot_tokens_),
                  .workspace = as<float>(workspace_)};
  ring_.attach(call);
  braid::cuda::sample(call, config, context);
}

void SlotSampler::wait_taken(uint64_t steps) const {
  wait_for_device(
      backend_,
      [&] {
        return std::atomic_ref(*as<uint64_t>(taken_)).load(std::memory_order_acquire) >= steps;
      },
      "the begin of a step");
}

void SlotSampler::wait(uint64_t step, std::span<const int32_t> row_slots,
                       std::vector<SlotToken>& tokens) const {
  tokens.clear();
  for (size_t r = 0; r < row_slots.size(); ++r) {
    if (row_slots[r] < 0) continue;
    const auto row = static_cast<int32_t>(r);
    wait_for_device(
        backend_, [&] { return ring_.ready(step, row); }, "a token");
    // A kernel's expired wait gives a token too, from void logits.
    if (tokens.empty()) backend_.check_job();
    const SampleRecord& record = ring_.record(step, row);
    SlotToken& token = tokens.emplace_back();
    token.token = {.id = record.id, .logprob = record.logprob};
    if (record.status & kSampleNotFinite) {
      token.fault = SlotToken::Fault::not_numbers;
    } else if (record.status & kSampleNoToken) {
      token.fault = SlotToken::Fault::none_allowed;
    }
    for (const SampleTop& top : ring_.tops(step, row)) {
      token.token.top.push_back({top.id, top.logprob});
    }
  }
}

}  // namespace braid::cuda
