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
  std::vector<float> logits;         // [V] of a token that waits for its mask; else empty
  bool fresh_mask = false;           // asked for, and not yet looked for
  AnswerEnd facts;                   // as far as they are known
  std::vector<SampledToken> prompt;  // log-probabilities
};
using ActiveRequests = std::map<RequestId, std::shared_ptr<ActiveRequest>>;

// A step that ended, and its tokens.
struct EndedRequests {
  Step step;
  // Of the rows that sample; void where the request has ended, kPendingToken where a mask is late.
  std::vector<SampledToken> tokens;
  double seconds = 0;         // as of EndedStep
  double waited = 0;          // likewise, in take()
  double sample_seconds = 0;  // of the host: tokens are chosen and handed out
};

// What became of a step that was put in.
struct PutStep {
  double waited = 0;             // seconds for its end, where one step runs at a time
  std::optional<Error> refused;  // its strategy was: the step never runs, and others may
};

// A token that a request waited for.
struct LateToken {
  RequestId id = 0;
  SampledToken token;
};

// Steps of a scheduler's requests in a queue: who has which slot, and whose tokens come. Tokens
// that a queue cannot choose are chosen here, by several threads. Masks are made by the same
// threads: a request whose mask is late sits steps out, and no other waits. Not for several
// threads.
class RequestSteps {
 public:
  // `scheduler` and `ends`, the vocabulary's end-of-generation ids, outlive it. A worker calls
  // `mask_made` after each mask.
  RequestSteps(std::unique_ptr<StepQueue> queue, Scheduler& scheduler, int64_t page_size,
               const std::vector<int32_t>& ends, std::function<void()> mask_made);

  using Chosen = std::function<void(const std::shared_ptr<ActiveRequest>&, const SampledToken&)>;

  bool empty() const { return window_.empty(); }  // no step is under way
  // Whether the oldest step has to be taken before another is put in.
  bool full() const { return window_.full(); }
  // Forgets steps that never end.
  void clear() { window_.clear(); }

  // Asks for the mask of the next token; as soon as all tokens before are known.
  void prepare(const std::shared_ptr<ActiveRequest>& request);
  // Tokens whose masks have come since; other requests whose masks have come take part in steps
  // again. `chosen` as in take().
  std::vector<LateToken> look(const ActiveRequests& active, const Chosen& chosen);
  // Whether requests sit out until masks come or steps under way end.
  bool waits() const { return !waiting_.empty(); }
  // Whether a step is better put in when none is under way: many requests of the newest have masks,
  // and would miss the next.
  bool one_by_one() const;
  int64_t late_masks() const { return late_masks_; }

  // Puts in a step of the scheduler. The caller ends the requests of a step that is refused.
  PutStep put(const Step& step, const ActiveRequests& active);
  // Waits for the oldest step, and tells the scheduler of its tokens. `chosen` hears of each token
  // without an error as soon as it is chosen, from any thread, for one request at a time.
  EndedRequests take(const ActiveRequests& active, const Chosen& chosen);
  // The request gives up its slot: it has ended, or its pages are taken.
  void leave(ActiveRequest& request);
  int64_t late_preparations() const { return queue_->late_preparations(); }

 private:
  // A token that the host chooses.
  struct HostChoice {
    std::shared_ptr<ActiveRequest> request;
    std::span<float> logits;       // [V]
    std::span<const int32_t> ids;  // of the sequence
    size_t token = 0;              // of those of the step
  };

  // The ids of a sequence as far as they are known; empty while a step computes the newest.
  std::span<const int32_t> known_ids(RequestId id) const;
  void join(ActiveRequest& request, std::span<const int32_t> ids);
  void wait_for_mask(RequestId id);
  std::vector<SampledToken> tokens_of(const StepUnderWay& under_way,
                                      std::span<const SlotToken> by_slot,
                                      const ActiveRequests& active, const Chosen& chosen);
  void choose(std::vector<HostChoice>& choices, std::vector<SampledToken>& tokens,
              const Chosen& chosen);

  const std::unique_ptr<StepQueue> queue_;
  Scheduler& scheduler_;
  const std::vector<int32_t>& ends_;
  Batch batch_;
  SlotTable slots_;
  StepWindow window_;
  std::vector<RequestId> waiting_;  // held by the scheduler, for masks
  int64_t late_masks_ = 0;
  const std::function<void()> mask_made_;
  Workers workers_;
};

}  // namespace braid
