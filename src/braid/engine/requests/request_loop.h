#pragma once

#include <algorithm>
#include <array>
#include <memory>

#include "braid/engine/requests/answer.h"
#include "braid/engine/requests/scheduler.h"
#include "braid/engine/requests/step_queue.h"
#include "braid/engine/runner.h"
#include "braid/io/tokenizer.h"

namespace braid {

// Most tokens of each class of steps in RequestStats::steps_by_tokens; longer steps are the last
// class.
inline constexpr std::array<int64_t, 13> kStepTokenBounds = {1,   8,    16,   32,   64,   128,  256,
                                                             512, 1024, 2048, 4096, 8192, 16384};

// A loop's present and past work, for metrics and health.
struct RequestStats {
  Scheduler::Counts scheduler;
  int64_t steps = 0;
  int64_t prompt_tokens = 0;      // computed, so far
  int64_t answer_tokens = 0;      // sampled, so far
  int64_t dropped_tokens = 0;     // sampled by steps that were under way when their request ended
  int64_t late_masks = 0;         // masks for which a request sat steps out
  int64_t late_preparations = 0;  // of plans, graphs and memory, after the loop began
  int64_t step_tokens = 0;        // of the last step
  int64_t all_step_tokens = 0;    // of all steps
  // Number of steps per class of kStepTokenBounds.
  std::array<int64_t, kStepTokenBounds.size() + 1> steps_by_tokens{};
  double step_seconds = 0;    // of all steps: the ranks' time
  double host_seconds = 0;    // of all steps: this thread's time beside waiting and sampling
  double sample_seconds = 0;  // of all steps: choosing tokens
  double last_turn = 0;       // when the loop last ended a step or an idle turn, steady clock
  double oldest_wait = 0;     // seconds
  std::string error;          // the error that ended the loop; empty: none did

  void add_step(int64_t tokens) {
    ++steps;
    step_tokens = tokens;
    all_step_tokens += tokens;
    const auto bound = std::ranges::lower_bound(kStepTokenBounds, tokens);
    ++steps_by_tokens[static_cast<size_t>(bound - kStepTokenBounds.begin())];
  }
};

// Answers many requests at once: one thread owns the runner, the KV pages and the order of steps;
// a second one makes text of tokens while the next step computes. All functions may be called from
// any thread.
class RequestLoop {
 public:
  // `config`'s pages, page size and context are those of the runner's cache. Runner and tokenizer
  // outlive the loop; nobody else steps the runner meanwhile. `vocabulary`: rows of the model's
  // head. Of `options` the caller sets graph_bytes, on_host, say and on_step. Returns when every
  // step that can be needed is planned.
  RequestLoop(Runner& runner, const Tokenizer& tokenizer, int64_t vocabulary, DType kv_dtype,
              const SchedulerConfig& config, const StepQueueOptions& options = {});
  // Ends all requests with AnswerReason::abort.
  ~RequestLoop();

  // Accepts a request; the sink hears of it from now on until on_end. Fails, and the sink hears
  // nothing: with kInvalidArgument where the request is wrong or can never fit, with kResource
  // where too many requests wait, with kAborted where the loop drains or has ended.
  RequestId submit(AnswerRequest request, std::shared_ptr<AnswerSink> sink);

  // Ends a request with AnswerReason::abort, before the next step. Unknown ids are no fault: a
  // request may have ended meanwhile.
  void cancel(RequestId id);

  // Cancels all present requests likewise.
  void cancel_all();

  // Takes no new requests and waits until all have ended. False: they had not after `seconds`.
  bool drain(double seconds);

  RequestStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
