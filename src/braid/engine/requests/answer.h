#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braid/base/error.h"
#include "braid/engine/approximation.h"
#include "braid/engine/sampling.h"
#include "braid/engine/token_loop.h"
#include "braid/tensor/view.h"

namespace braid {

// A prompt with its sampling rules, limits and client.
struct AnswerRequest {
  std::vector<int32_t> prompt;  // at least one id
  int64_t max_tokens = 0;       // of the answer; 0: until the context is full
  int64_t min_tokens = 0;       // of the answer, before an end-of-generation token is allowed
  SamplingParams sampling;
  std::vector<std::string> stop;  // stop texts, each non-empty
  std::vector<int32_t> stop_ids;  // end the answer like an end-of-generation token
  bool include_stop = false;      // the stop text is part of the answer
  bool continuation = false;      // the answer continues the prompt's text: keep a leading space
  bool ignore_eos = false;
  bool skip_special = true;  // special tokens have no text
  int prompt_logprobs = -1;  // alternatives to report with each prompt token; -1: none
  bool list_tokens = false;  // pieces list their tokens, also without log-probabilities
  // Receives logits f32 [V] of each prompt token, in order, on the engine's thread; the span is
  // valid during the call. Empty: no logits are wanted.
  std::function<void(int64_t position, std::span<const float> logits)> on_logits;
  // Receives logits of the prompt tokens from `position` on: f32 [n, V] in rank 0's device memory.
  std::function<void(int64_t position, const TensorView& rows)> on_logit_rows;
  // Gives the tokens allowed next; empty: all tokens are allowed. Called before each token, from
  // any thread of the engine, one call at a time, and never after on_end.
  TokenMask mask;
  std::string key;     // the client: keys share the steps evenly
  std::string salt;    // requests of different salts share no cached keys
  bool exact = false;  // all keys count, also where the engine's prompts are approximate

  // Whether the request wants logits for every prompt token, and so takes no prefix from the cache.
  bool scores_prompt() const { return prompt_logprobs >= 0 || on_logits || on_logit_rows; }
};

struct SchedulerConfig;

// Fails with kInvalidArgument if the request is wrong or can never fit. `vocabulary`: rows of the
// model's head.
void check(const AnswerRequest& request, const SchedulerConfig& config, int64_t vocabulary);

enum class AnswerReason {
  stop,    // an end-of-generation token, a stop id or a stop text
  length,  // max_tokens, or the context is full
  abort,   // cancelled by its caller
  error,
};
std::string_view to_string(AnswerReason reason);

// A piece of an answer: whole characters, beyond the reach of any stop text, and the tokens since
// the former piece. Valid during the call.
struct AnswerPiece {
  std::string_view text;
  std::span<const SampledToken> tokens;
  int64_t answer_tokens = 0;  // the answer's tokens so far, including this piece
};

// Times of a request's events, in seconds of the steady clock; 0: not happened.
struct AnswerTimes {
  double arrival = 0;
  double begin = 0;  // its first step
  double first_token = 0;
  double last_token = 0;
  double end = 0;
};

// An answer's counts and times so far.
struct AnswerFacts {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens found in the prefix cache
  int64_t answer_tokens = 0;  // sampled tokens, including an end-of-generation token
  int64_t preemptions = 0;
  // Shares of what the request computed, if its prompt left far keys out, or took cached keys of
  // prompts that may have; null: exact.
  std::shared_ptr<const Approximation> approximate;
  AnswerTimes times;
};

struct AnswerEnd : AnswerFacts {
  AnswerReason reason = AnswerReason::stop;
  std::optional<Error> error;  // set for AnswerReason::error
  std::string stop;            // the matched stop text
  std::optional<int32_t> stop_id;
};

// Receiver of an answer. Calls come in order, from a single thread of the engine, and must not
// block: a sink with a slow reader buffers its data and returns.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // Log-probabilities of the prompt's tokens from the second on, before the first piece; called
  // only for requests with prompt_logprobs.
  virtual void on_prompt(std::span<const SampledToken> /*tokens*/) {}
  // False ends the request, with AnswerReason::abort.
  virtual bool on_piece(const AnswerPiece& piece) = 0;
  // Once, last.
  virtual void on_end(const AnswerEnd& end) = 0;
};

}  // namespace braid
