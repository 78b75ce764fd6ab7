#include "braid/engine/recorded_loop.h"

#include <utility>

#include "braid/engine/step_records.h"

namespace braid {

RecordedLoop::RecordedLoop(job::Job& job, LoopRequest request, const Make& make)
    : TokenLoop(request), job_(job), known_(request.sequences.size()) {
  job_.send_record(loop_record(request, new_pages(1)));
  loop_ = make(std::move(request));
}

RecordedLoop::~RecordedLoop() {
  loop_.reset();
  try {
    job_.send_record(loop_end_record());
  } catch (const std::exception&) {
    // The job has failed, and all processes know.
  }
}

std::vector<std::vector<int32_t>> RecordedLoop::new_pages(int64_t tokens) {
  std::vector<std::vector<int32_t>> all;
  for (size_t s = 0; s < slots_.size(); ++s) {
    const LoopSequence& sequence = slots_[s].sequence;
    const std::span<const int32_t> pages = sequence.hold(std::ssize(sequence.prompt) + tokens);
    const std::span<const int32_t> fresh = pages.subspan(known_[s]);
    all.emplace_back(fresh.begin(), fresh.end());
    known_[s] = pages.size();
  }
  return all;
}

std::span<const SampledToken> RecordedLoop::next() {
  // The loop holds pages a token ahead, but for the last step.
  ++steps_;
  std::vector<std::vector<int32_t>> pages(slots_.size());
  if (steps_ < request_.limit) pages = new_pages(steps_);
  job_.send_record(loop_step_record(pages));
  return loop_->next();
}

}  // namespace braid
