#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "braid/engine/token_loop.h"
#include "braid/job/job.h"

namespace braid {

// A loop of process 0 of a job with sampling on devices: records (step_records.h) tell the other
// processes the loop, each step and the end, before process 0 acts.
class RecordedLoop final : public TokenLoop {
 public:
  using Make = std::function<std::unique_ptr<TokenLoop>(LoopRequest request)>;
  // `make` makes the loop of this process' rank. Sequences have no masks.
  RecordedLoop(job::Job& job, LoopRequest request, const Make& make);
  ~RecordedLoop() override;

  std::span<const SampledToken> next() override;
  LoopStats stats() const override { return loop_->stats(); }

 private:
  // Pages unknown to the other processes, for `tokens` tokens behind the prompts: [S].
  std::vector<std::vector<int32_t>> new_pages(int64_t tokens);

  job::Job& job_;
  std::vector<size_t> known_;  // [S] pages known to all processes
  int64_t steps_ = 0;          // asked for so far
  std::unique_ptr<TokenLoop> loop_;
};

}  // namespace braid
