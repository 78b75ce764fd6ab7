#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "braid/engine/token_loop.h"
#include "braid/job/job.h"

namespace braid {

// A loop of process 0 of a job whose ranks sample on their devices: tells the other processes the
// loop, each step and the end, as records (step_records.h), each before this process acts.
class RecordedLoop final : public TokenLoop {
 public:
  using Make = std::function<std::unique_ptr<TokenLoop>(LoopRequest request)>;
  // `make` makes the loop of this process' rank; masks are of HostLoop alone.
  RecordedLoop(job::Job& job, LoopRequest request, const Make& make);
  ~RecordedLoop() override;

  std::span<const SampledToken> next() override;
  LoopStats stats() const override { return loop_->stats(); }

 private:
  // The pages that the others do not know yet, for so many tokens behind the prompts: [S].
  std::vector<std::vector<int32_t>> new_pages(int64_t tokens);

  job::Job& job_;
  std::vector<size_t> known_;  // [S] pages that all know
  int64_t steps_ = 0;          // that were asked for
  std::unique_ptr<TokenLoop> loop_;
};

}  // namespace braid
