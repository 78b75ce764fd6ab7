#include "braid/engine/cuda/planned_loop.h"

#include "braid/base/error.h"
#include "braid/kernels/cuda/sampling/params.h"
#include "braid/ops/input_names.h"

namespace braid::cuda {

PlannedLoop::PlannedLoop(std::vector<LoopRank> ranks, const fabric::Fabric& fabric,
                         LoopRequest request, uint64_t& first, StepPlanner& planner)
    : TokenLoop(std::move(request)),
      ranks_(std::move(ranks)),
      fabric_(fabric),
      planner_(planner),
      batch_(request_.page_size),
      status_(slots_.size()),
      step_(first),
      first_(first),
      read_(first) {
  const TensorView logits = slice_rows(ranks_[0].prompt->output(0), 0, std::ssize(slots_));
  for (const LoopRank& rank : ranks_) {
    const DeviceScope scope(rank.backend->device().id);
    rank.sampler->begin(slots_, request_.mask_deadline_ms, first_);
    const cudaStream_t stream = rank.backend->stream(Stream::compute);
    TensorView own = logits;
    if (rank.prompt != nullptr) {
      own = rank.prompt->output(0);
    } else {
      logits_.push_back(rank.backend->allocate(logits.bytes()));
      own.data = logits_.back()->data();
      check_cuda(cudaMemcpyAsync(own.data, logits.data, logits.bytes(), cudaMemcpyDefault, stream),
                 "logits of a prompt");
      // Steps of rank 0, on another stream, may write where its logits are.
      check_cuda(cudaStreamSynchronize(stream), "logits of a prompt");
    }
    // The logits are read first: the step's inputs may share their memory.
    rank.sampler->sample(own, {stream});
  }
  ++step_;
}

PlannedLoop::~PlannedLoop() {
  // An unwanted step may still run in pages that the caller frees after this destructor.
  for (size_t r = 0; bound_ && r < ranks_.size(); ++r) {
    try {
      replay_of(*bound_->executors[r]).finish();
    } catch (const std::exception&) {
      // The request has ended; the next one meets the error.
    }
  }
}

std::span<const SampledToken> PlannedLoop::next() {
  with_first_error(fabric_, [&] { step(); });
  return hand_out();
}

void PlannedLoop::step() {
  if (static_cast<int64_t>(step_ - first_) < request_.limit) put();
  ranks_[0].sampler->wait(read_, tokens_, status_);
  for (size_t s = 0; s < slots_.size(); ++s) {
    const bool fault = (status_[s] & (kSampleNotFinite | kSampleNoToken)) != 0;
    if (fault && !tokens_[s].error) tokens_[s].error = not_numbers(slots_[s]);
  }
  ++read_;
}

LoopStats PlannedLoop::stats() const {
  LoopStats stats = stats_;
  if (stats.steps > 0) stats.cpu_us = 1e6 * cpu_seconds_ / static_cast<double>(stats.steps);
  stats.positions = static_cast<int64_t>(step_ - first_);
  if (bound_) stats.launches = replay_of(*bound_->executors[0]).put_launches();
  return stats;
}

// A token of each sequence, by the sequence's number: the device knows the token.
PlannedStep PlannedLoop::plan() {
  batch_.clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    const LoopSequence& sequence = slots_[s].sequence;
    const int64_t tokens = std::ssize(sequence.prompt) + static_cast<int64_t>(step_ - first_);
    const int32_t id = -1 - static_cast<int32_t>(s);
    batch_.add({&id, 1}, tokens - 1, sequence.hold(tokens), 1, sequence.group);
  }
  PlannedStep step = planner_.prepare(batch_);
  BRAID_CHECK(step.bound->ranks() == std::ssize(ranks_), "a step of {} ranks, {} have a loop",
              step.bound->ranks(), ranks_.size());
  for (const LoopRank& rank : ranks_) rank.rank->back_pages(step.pages);
  return step;
}

void PlannedLoop::use(const std::shared_ptr<BoundForward>& bound) {
  if (bound == bound_) return;
  before_ = std::exchange(bound_, bound);  // may still run
  hooks_.clear();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Executor& executor = *bound->executors[r];
    const DeviceSampler* const sampler = ranks_[r].sampler;
    hooks_.push_back(
        {.before = [sampler, ids = executor.device_input(inputs::kTokenIds)](
                       const LaunchContext& context) { sampler->take(ids, context); },
         .after = [sampler, logits = executor.output(0)](
                      const LaunchContext& context) { sampler->sample(logits, context); }});
  }
}

void PlannedLoop::put() {
  const double cpu_begin = thread_seconds();
  const PlannedStep step = plan();
  const bool again = step.bound == bound_;
  use(step.bound);
  // Inputs of the step before lie in the same memory.
  const double wait_begin = thread_seconds();
  for (const LoopRank& rank : ranks_) rank.sampler->wait_taken(step_ - 1);
  const double waited = thread_seconds() - wait_begin;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Executor& executor = *bound_->executors[r];
    step.inputs->write(executor, static_cast<int>(r));
    const auto counts = step.counts_of(static_cast<int>(r));
    executor.set_counts({counts.begin(), counts.size()});
  }
  // Makes all graphs before any rank waits for another rank: loading a kernel may wait for a
  // running kernel.
  for (size_t r = 0; r < ranks_.size(); ++r) {
    replay_of(*bound_->executors[r]).prepare_put(hooks_[r]);
  }
  for (size_t r = 0; r < ranks_.size(); ++r) replay_of(*bound_->executors[r]).put(hooks_[r]);
  ++step_;
  if (!again) return;  // the step's graphs were made
  ++stats_.steps;
  cpu_seconds_ += thread_seconds() - cpu_begin - waited;
}

}  // namespace braid::cuda
