#include "braid/engine/cuda/cuda_loop.h"

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

CudaReplay& replay_of(Executor& executor) {
  return dynamic_cast<CudaReplay&>(executor.replay());
}

}  // namespace

CudaLoop::CudaLoop(std::vector<LoopRank> ranks, LoopRequest request, uint64_t& first,
                   int64_t page_size)
    : ranks_(std::move(ranks)),
      request_(std::move(request)),
      page_size_(page_size),
      step_(first),
      first_(first),
      read_(first) {
  const auto cached = std::ssize(request_.prompt);
  pages_ = ceil_div(static_cast<int64_t>(cached + 1), page_size_);
  for (const LoopRank& rank : ranks_) {
    const DeviceScope scope(rank.backend->device().id);
    rank.sampler->begin(request_.sampling, request_.prompt, first_);
    // The logits go first: the step's inputs may lie where they are.
    rank.sampler->sample(rank.prompt->output(0), {rank.backend->stream(Stream::compute)});
    replay_of(*rank.step).begin_loop();
    hooks_.push_back(hooks(rank));
  }
  ++step_;
}

CudaLoop::~CudaLoop() {
  // A step that is not wanted any more may still run, in pages that are given back after this.
  for (const LoopRank& rank : ranks_) {
    try {
      replay_of(*rank.step).finish();
    } catch (const std::exception&) {
      // The request has ended; the next one meets the error.
    }
  }
}

SampledToken CudaLoop::next() {
  // The step after the one that is waited for is on its way first.
  if (static_cast<int64_t>(step_ - first_) < request_.limit) enqueue();
  return ranks_[0].sampler->wait(read_++);
}

void CudaLoop::enqueue() {
  reserve(std::ssize(request_.prompt) + static_cast<int64_t>(step_ - first_));
  // All graphs are there before any rank may wait for another.
  for (size_t r = 0; r < ranks_.size(); ++r) {
    replay_of(*ranks_[r].step).prepare_loop(hooks_[r]);
  }
  for (size_t r = 0; r < ranks_.size(); ++r) replay_of(*ranks_[r].step).enqueue(hooks_[r]);
  ++step_;
}

// The page of a step's token, one step ahead.
void CudaLoop::reserve(int64_t tokens) {
  if (ceil_div(tokens, page_size_) <= pages_) return;
  const std::span<const int32_t> pages = request_.hold(tokens);
  for (const LoopRank& rank : ranks_) {
    const DeviceScope scope(rank.backend->device().id);
    const TensorView host = rank.step->input("page_table");
    const TensorView device = rank.step->device_input("page_table");
    for (auto i = static_cast<size_t>(pages_); i < pages.size(); ++i) {
      host.as<int32_t>()[i] = pages[i];
      check_cuda(cudaMemcpyAsync(device.as<int32_t>() + i, host.as<int32_t>() + i, sizeof(int32_t),
                                 cudaMemcpyHostToDevice, rank.backend->stream(Stream::compute)),
                 "a page");
    }
  }
  pages_ = std::ssize(pages);
}

CudaReplay::Hooks CudaLoop::hooks(const LoopRank& rank) const {
  const auto input = [&](std::string_view name) {
    return rank.step->device_input(name).as<int32_t>();
  };
  const TensorView table = rank.step->device_input("page_table");
  const AdvanceParams inputs = {.token_ids = input("token_ids"),
                                .positions = input("positions"),
                                .kv_len = input("kv_len"),
                                .slots = input("slots"),
                                .page_table = table.as<const int32_t>(),
                                .page_table_stride = static_cast<int32_t>(table.cols()),
                                .page_size = static_cast<int32_t>(page_size_)};
  return {.before = [sampler = rank.sampler,
                     inputs](const LaunchContext& context) { sampler->advance(inputs, context); },
          .after = [sampler = rank.sampler, logits = rank.step->output(0)](
                       const LaunchContext& context) { sampler->sample(logits, context); }};
}

}  // namespace braid::cuda
