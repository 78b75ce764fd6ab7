#pragma once

#include <functional>
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

// A request from its first step to its end.
struct ActiveRequest {
  ActiveRequest(RequestId request_id, AnswerRequest r, const Tokenizer& tokenizer,
                std::span<const int32_t> ends, DType kv_dtype, std::shared_ptr<AnswerSink> sink)
      : id(request_id),
        request(std::move(r)),
        writer(request, tokenizer, std::move(sink)),
        sampler(request, ends, kv_dtype) {}

  const RequestId id;
  // The loop's thread.
  int32_t slot = -1;        // in the queue
  bool fresh_mask = false;  // requested, arrival not checked yet
  AnswerEnd facts;          // known so far
  const AnswerRequest request;
  AnswerWriter writer;  // other threads, too
  // The loop's thread.
  AnswerSampler sampler;             // for sampling on the host
  std::vector<float> logits;         // [V] of a token with a late mask; else empty
  std::vector<SampledToken> prompt;  // log-probabilities
  LevelShares left_out;              // of its prompt

  // Begins to read all that every step needs, which a computed step has pushed out of the caches.
  void fetch() const {
    constexpr size_t kCounts = 16;  // of std::make_shared, in front of the object
    const char* const first = reinterpret_cast<const char*>(this) - kCounts;
    const char* const last = reinterpret_cast<const char*>(&writer);
    prefetch(first, last);
  }
};
using ActiveRequests = ById<RequestId, std::shared_ptr<ActiveRequest>>;

// Whether the host takes longer to choose a token than to wake a thread.
bool takes_long(const AnswerRequest& request);

// An ended step with its tokens.
struct EndedRequests {
  Step step;
  // A token for each sampling row: void for an ended request, kPendingToken for a late mask.
  std::vector<SampledToken> tokens;
  double seconds = 0;         // EndedStep::seconds
  double waited = 0;          // EndedStep::waited, in take() alone
  double sample_seconds = 0;  // host time for choosing tokens and prompts' log-probabilities
};

// Result of RequestSteps::put().
struct PutStep {
  double waited = 0;             // seconds until the step's end, if steps run one at a time
  std::optional<Error> refused;  // the strategy refused the step; further steps may run
};

// A token chosen after its late mask arrived.
struct LateToken {
  RequestId id = 0;
  SampledToken token;
};

// Connects the scheduler's steps to a StepQueue: assigns slots, and routes tokens to requests.
// Worker threads sample tokens for requests without a slot, and make masks. A request with a late
// mask gets no rows meanwhile; other requests go on. Not thread-safe.
class RequestSteps {
 public:
  // `scheduler` and `ends` (the end-of-generation ids) must outlive this object. A worker thread
  // calls `mask_made` after each mask.
  RequestSteps(std::unique_ptr<StepQueue> queue, Scheduler& scheduler, int64_t page_size,
               const std::vector<int32_t>& ends, std::function<void()> mask_made);

  using Chosen = std::function<void(const std::shared_ptr<ActiveRequest>&, const SampledToken&)>;

  bool empty() const { return window_.empty(); }  // no step is under way
  // Whether take() must precede the next put().
  bool full() const { return window_.full(); }
  // Forgets all steps under way, after a fault of the queue.
  void clear() { window_.clear(); }

  // Requests the mask of the next token. Requires: all earlier tokens are known.
  void prepare(const std::shared_ptr<ActiveRequest>& request);
  // Tokens of masks that arrived since the last call. Requests with an arrived mask and no waiting
  // token take part in steps again. `chosen` as in take().
  std::vector<LateToken> look(const ActiveRequests& active, const Chosen& chosen);
  // Whether some request waits for a mask.
  bool waits() const { return !waiting_.empty(); }
  // Whether the next step is better put in when none is under way (worth_a_pause).
  bool one_by_one() const;
  int64_t late_masks() const { return late_masks_; }

  // Puts in a scheduler's step. The caller ends the requests of a refused step.
  PutStep put(const Step& step, const ActiveRequests& active);
  // Waits for the oldest step and passes the tokens to the scheduler. `chosen` is called for each
  // valid token at once, from any thread, with one call at a time for a request.
  EndedRequests take(const ActiveRequests& active, const Chosen& chosen);
  // Frees the slot of a request that has ended or given up its pages.
  void leave(ActiveRequest& request);
  int64_t late_preparations() const { return queue_->late_preparations(); }

 private:
  // A token sampled on the host.
  struct HostChoice {
    std::shared_ptr<ActiveRequest> request;
    std::span<float> logits;       // [V]
    std::span<const int32_t> ids;  // of the sequence
    size_t token = 0;              // index in the step's tokens
  };

  // The request's first step.
  void begin(ActiveRequest& request, double time);
  // A step of the request alone was put in.
  static void add_left_out(ActiveRequest& request, const Approximation& made);
  // All ids of a sequence; empty while a step under way computes the newest id.
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
  std::vector<RequestId> waiting_;  // requests held in the scheduler for late masks
  int64_t late_masks_ = 0;
  double step_seconds_ = 0;  // of the step taken last
  const std::function<void()> mask_made_;
  Workers workers_;
};

}  // namespace braid
