#include "braid/engine/cuda/cuda_loop.h"

#include <algorithm>
#include <chrono>

#include "braid/base/clock.h"
#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/sampling/params.h"
#include "braid/ops/input_names.h"

namespace braid::cuda {

CudaLoop::CudaLoop(std::vector<LoopRank> ranks, const fabric::Fabric& fabric, bool waits,
                   LoopRequest request, uint64_t& first, StepPlanner& planner)
    : TokenLoop(std::move(request)),
      ranks_(std::move(ranks)),
      fabric_(fabric),
      waits_(waits),
      planner_(planner),
      status_(slots_.size()),
      errors_(slots_.size()),
      step_(first),
      first_(first),
      read_(first) {
  for (const LoopSlot& slot : slots_) {
    pages_.push_back(ceil_div(slot.tokens() + 1, request_.page_size));
    masked_ |= static_cast<bool>(slot.sequence.mask);
  }
  if (masked_) {
    all_.assign(ceil_div(ranks_[0].step->output(0).cols(), 32), ~0u);
  }
  for (const LoopRank& rank : ranks_) {
    const DeviceScope scope(rank.backend->device().id);
    rank.sampler->begin(slots_, request_.mask_deadline_ms, first_);
    if (request_.trace && !base_) {
      base_ = make_event(true);
      base_seconds_ = steady_seconds();
      record(base_, rank.backend->stream(Stream::compute));
    }
    // The logits are read first: the step's inputs may share their memory.
    rank.sampler->sample(rank.prompt->output(0), {rank.backend->stream(Stream::compute)});
    replay_of(*rank.step).begin_loop();
    hooks_.push_back(hooks(rank));
  }
  ++step_;
}

CudaLoop::~CudaLoop() {
  // An unwanted step may still run in pages that the caller frees after this destructor.
  for (const LoopRank& rank : ranks_) rank.sampler->release();
  for (const LoopRank& rank : ranks_) {
    try {
      replay_of(*rank.step).finish();
    } catch (const std::exception&) {
      // The request has ended; the next one meets the error.
    }
  }
}

std::span<const SampledToken> CudaLoop::next() {
  with_first_error(fabric_, [&] { step(); });
  return hand_out();
}

void CudaLoop::step() {
  // Enqueues the following step before waiting, unless enqueueing allocates or waits on the device.
  const bool more = static_cast<int64_t>(step_ - first_) < request_.limit;
  const bool masks_first = more && (!ready() || grows());
  if (masks_first) give_masks();
  if (more) enqueue();
  if (!masks_first) give_masks();
  const double wait_begin = request_.trace ? steady_seconds() : 0;
  ranks_[0].sampler->wait(read_, tokens_, status_);
  if (request_.trace && read_ > first_) {
    LoopStep& times = trace_[read_ - first_ - 1].host;
    times.wait_begin = wait_begin;
    times.wait_end = steady_seconds();
  }
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!errors_[s]) errors_[s] = error_of(s, status_[s]);
    tokens_[s].error = errors_[s];
  }
  ++read_;
}

std::optional<Error> CudaLoop::error_of(size_t s, uint32_t status) const {
  if (status & kSampleMaskLate) {
    return Error(ErrorCode::kDeadline,
                 fmt::format("cuda:{}: the mask of sequence {} did not come within {} ms",
                             ranks_[0].backend->device().id, s, request_.mask_deadline_ms));
  }
  if (status & kSampleNotFinite || (status & kSampleNoToken && !slots_[s].sequence.mask)) {
    return not_numbers(slots_[s]);
  }
  if (status & kSampleNoToken) {
    return Error(ErrorCode::kInvalidArgument, std::string(kNoTokenAllowed));
  }
  return {};
}

bool CudaLoop::ready() const {
  return std::ranges::all_of(
      ranks_, [](const LoopRank& rank) { return replay_of(*rank.step).loop_ready(); });
}

std::span<const int32_t> CudaLoop::next_pages(size_t slot) const {
  const LoopSequence& sequence = slots_[slot].sequence;
  const int64_t tokens = std::ssize(sequence.prompt) + static_cast<int64_t>(step_ - first_);
  const int64_t pages = ceil_div(tokens, request_.page_size);
  if (pages <= pages_[slot]) return {};
  return sequence.hold(tokens).first(pages);
}

bool CudaLoop::grows() const {
  for (size_t s = 0; s < slots_.size(); ++s) {
    const std::span<const int32_t> pages = next_pages(s);
    if (!pages.empty() && std::ranges::max(pages) >= ranks_[0].rank->backed_pages()) return true;
  }
  return false;
}

// Gives the masks of the next step to read. The device waits for a mask of every sequence with
// masks, even after the sequence's end by an error.
void CudaLoop::give_masks() {
  if (!masked_) return;
  for (size_t s = 0; s < slots_.size(); ++s) {
    const TokenMask& mask = slots_[s].sequence.mask;
    if (!mask) continue;
    std::span<const uint32_t> allowed = all_;
    try {
      if (!errors_[s]) allowed = mask(slots_[s].generated);
    } catch (const Error& error) {
      errors_[s] = error;
    }
    for (const LoopRank& rank : ranks_) rank.sampler->allow(read_, s, allowed);
  }
}

void CudaLoop::enqueue() {
  const bool replayed = ready();
  const double cpu_begin = thread_seconds();
  if (request_.trace) {
    trace_.emplace_back();
    trace_.back().host.enqueue_begin = steady_seconds();
  }
  for (size_t s = 0; s < slots_.size(); ++s) reserve(s);
  // Makes all graphs before any rank waits for another rank: loading a kernel may wait for a
  // running kernel.
  for (size_t r = 0; r < ranks_.size(); ++r) {
    replay_of(*ranks_[r].step).prepare_loop(hooks_[r], waits_);
  }
  if (request_.trace) mark(false);
  for (size_t r = 0; r < ranks_.size(); ++r) replay_of(*ranks_[r].step).enqueue(hooks_[r]);
  if (request_.trace) {
    mark(true);
    trace_.back().host.enqueue_end = steady_seconds();
  }
  ++step_;
  if (!replayed) return;
  ++stats_.steps;
  cpu_seconds_ += thread_seconds() - cpu_begin;
}

// Records the begin or the end of the newest step on the first rank's device.
void CudaLoop::mark(bool end) {
  const CudaBackend& backend = *ranks_[0].backend;
  const DeviceScope scope(backend.device().id);
  OwnedEvent& event = end ? trace_.back().end : trace_.back().begin;
  event = make_event(true);
  record(event, backend.stream(Stream::compute));
}

LoopStats CudaLoop::stats() const {
  LoopStats stats = stats_;
  if (stats.steps > 0) stats.cpu_us = 1e6 * cpu_seconds_ / static_cast<double>(stats.steps);
  stats.positions = static_cast<int64_t>(step_ - first_);
  stats.launches = replay_of(*ranks_[0].step).loop_launches();
  if (trace_.empty()) return stats;
  replay_of(*ranks_[0].step).finish();
  const auto seconds = [&](const OwnedEvent& event) {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, base_.get(), event.get()), "an event's time");
    return base_seconds_ + 1e-3 * static_cast<double>(ms);
  };
  for (const Times& times : trace_) {
    stats.trace.push_back(times.host);
    stats.trace.back().device_begin = seconds(times.begin);
    stats.trace.back().device_end = seconds(times.end);
  }
  return stats;
}

// Reserves the page for a step's token, a step ahead.
void CudaLoop::reserve(size_t slot) {
  const std::span<const int32_t> pages = next_pages(slot);
  if (pages.empty()) return;
  int64_t& known = pages_[slot];
  const LoopSequence& sequence = slots_[slot].sequence;
  for (const LoopRank& rank : ranks_) rank.rank->back_pages(std::ranges::max(pages) + 1);
  planner_.record_loop(pages, std::ssize(sequence.prompt));
  for (const LoopRank& rank : ranks_) {
    const DeviceScope scope(rank.backend->device().id);
    const auto row = static_cast<int64_t>(slot);
    auto* host = rank.step->input(inputs::kPageTable).row_as<int32_t>(row);
    auto* device = rank.step->device_input(inputs::kPageTable).row_as<int32_t>(row);
    const size_t begin = known;
    std::ranges::copy(pages.subspan(begin), host + begin);
    check_cuda(
        cudaMemcpyAsync(device + begin, host + begin, (pages.size() - begin) * sizeof(int32_t),
                        cudaMemcpyHostToDevice, rank.backend->stream(Stream::compute)),
        "a page");
  }
  known = std::ssize(pages);
}

CudaReplay::Hooks CudaLoop::hooks(const LoopRank& rank) const {
  const auto input = [&](std::string_view name) {
    return rank.step->device_input(name).as<int32_t>();
  };
  const TensorView table = rank.step->device_input(inputs::kPageTable);
  const AdvanceParams inputs = {.token_ids = input(inputs::kTokenIds),
                                .positions = input(inputs::kPositions),
                                .kv_len = input(inputs::kKvLen),
                                .slots = input(inputs::kSlots),
                                .page_table = table.as<const int32_t>(),
                                .page_table_stride = static_cast<int32_t>(table.cols()),
                                .page_size = static_cast<int32_t>(request_.page_size)};
  return {.before = [sampler = rank.sampler,
                     inputs](const LaunchContext& context) { sampler->advance(inputs, context); },
          .after = [sampler = rank.sampler, logits = rank.step->output(0)](
                       const LaunchContext& context) { sampler->sample(logits, context); }};
}

}  // namespace braid::cuda
