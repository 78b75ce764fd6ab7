#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "braid/engine/requests/answer_sampler.h"
#include "braid/engine/requests/answer_writer.h"
#include "braid/engine/requests/scheduler.h"
#include "braid/engine/requests/slot_table.h"
#include "braid/engine/requests/step_queue.h"
#include "braid/engine/requests/step_window.h"

namespace braid {

// A request that has not ended.
struct ActiveRequest {
  ActiveRequest(RequestId request_id, AnswerRequest r, const Tokenizer& tokenizer,
                std::span<const int32_t> ends, DType kv_dtype, std::shared_ptr<AnswerSink> sink)
      : id(request_id),
        request(std::move(r)),
        writer(request, tokenizer, std::move(sink)),
        sampler(request, ends, kv_dtype) {}

  const RequestId id;
  const AnswerRequest request;
  AnswerWriter writer;
  // The loop's thread.
  AnswerSampler sampler;             // where the host chooses
  int32_t slot = -1;                 // in the queue
  AnswerEnd facts;                   // as far as they are known
  std::vector<SampledToken> prompt;  // log-probabilities
};
using ActiveRequests = std::map<RequestId, std::shared_ptr<ActiveRequest>>;

// A step that ended, and its tokens.
struct EndedRequests {
  Step step;
  std::vector<SampledToken> tokens;  // of the rows that sample; void where the request has ended
  double seconds = 0;                // as of EndedStep
  double waited = 0;                 // likewise, in take()
  double sample_seconds = 0;         // of the host: tokens are chosen and handed out
};

// What became of a step that was put in.
struct PutStep {
  double waited = 0;             // seconds for its end, where one step runs at a time
  std::optional<Error> refused;  // its strategy was: the step never runs, and others may
};

// Steps of a scheduler's requests in a queue: who has which slot, and whose tokens come. Tokens
// that a queue cannot choose are chosen here, by several threads, and their masks are made while
// the step computes. Not for several threads.
class RequestSteps {
 public:
  // `scheduler` and `ends`, the vocabulary's end-of-generation ids, outlive it.
  RequestSteps(std::unique_ptr<StepQueue> queue, Scheduler& scheduler, int64_t page_size,
               const std::vector<int32_t>& ends);

  bool empty() const { return window_.empty(); }  // no step is under way
  // Whether the oldest step has to be taken before another is put in.
  bool full() const { return window_.full(); }
  // Forgets steps that never end.
  void clear() { window_.clear(); }

  // Puts in a step of the scheduler. The caller ends the requests of a step that is refused.
  PutStep put(const Step& step, const ActiveRequests& active);
  // Waits for the oldest step, and tells the scheduler of its tokens. `chosen` hears of each token
  // without an error as soon as it is chosen, from any thread, for one request at a time.
  using Chosen = std::function<void(const std::shared_ptr<ActiveRequest>&, const SampledToken&)>;
  EndedRequests take(const ActiveRequests& active, const Chosen& chosen);
  // The request gives up its slot: it has ended, or its pages are taken.
  void leave(ActiveRequest& request);
  int64_t late_preparations() const { return queue_->late_preparations(); }

 private:
  void join(ActiveRequest& request, std::span<const int32_t> generated);
  std::vector<SampledToken> tokens_of(const StepUnderWay& under_way,
                                      std::span<const SlotToken> by_slot,
                                      const ActiveRequests& active, const Chosen& chosen);

  const std::unique_ptr<StepQueue> queue_;
  Scheduler& scheduler_;
  const std::vector<int32_t>& ends_;
  Batch batch_;
  SlotTable slots_;
  StepWindow window_;
  Workers workers_;
};

}  // namespace braid
