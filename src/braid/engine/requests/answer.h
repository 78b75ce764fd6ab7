#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braid/base/error.h"
#include "braid/engine/sampling.h"
#include "braid/engine/token_loop.h"
#include "braid/tensor/view.h"

namespace braid {

// A prompt, how it is to be continued, and on whose behalf.
struct AnswerRequest {
  std::vector<int32_t> prompt;  // at least one id
  int64_t max_tokens = 0;       // of the answer; 0: until the context is full
  int64_t min_tokens = 0;       // before these an end-of-generation token cannot be chosen
  SamplingParams sampling;
  std::vector<std::string> stop;  // texts that end the answer; none is empty
  std::vector<int32_t> stop_ids;  // ids that end the answer, as the end-of-generation token does
  bool include_stop = false;      // the stop text is part of the answer
  bool continuation = false;      // the answer goes on from the prompt's text: keep its first space
  bool ignore_eos = false;
  bool skip_special = true;  // special tokens have no text
  int prompt_logprobs = -1;  // alternatives to report with each prompt token; -1: none
  bool list_tokens = false;  // pieces list their tokens, also without log-probabilities
  // Logits f32 [V] of each token of the prompt, in order, from the engine's thread; the span is
  // valid during the call. Empty: none are wanted.
  std::function<void(int64_t position, std::span<const float> logits)> on_logits;
  // The same, of the tokens from `position` on: f32 [n, V] in the memory of rank 0's device.
  std::function<void(int64_t position, const TensorView& rows)> on_logit_rows;
  // Which tokens may come next; empty: all. Called ahead of the token, from any of the engine's
  // threads, one call at a time, and never after on_end.
  TokenMask mask;
  std::string key;   // whose request it is: keys share the steps evenly
  std::string salt;  // requests of different salts share no cached keys

  // Every token of the prompt is computed, and its logits are looked at.
  bool scores_prompt() const { return prompt_logprobs >= 0 || on_logits || on_logit_rows; }
};

struct SchedulerConfig;

// Fails with kInvalidArgument where the request is wrong or can never fit. `vocabulary`: rows of
// the model's head.
void check(const AnswerRequest& request, const SchedulerConfig& config, int64_t vocabulary);

enum class AnswerReason {
  stop,    // an end-of-generation token, a stop id or a stop text
  length,  // max_tokens, or the context is full
  abort,   // cancelled by its caller
  error,
};
std::string_view to_string(AnswerReason reason);

// A piece of an answer: text that cannot become part of a stop text any more, whole characters, and
// the tokens since the piece before. Valid during the call.
struct AnswerPiece {
  std::string_view text;
  std::span<const SampledToken> tokens;
  int64_t answer_tokens = 0;  // the answer's so far, with this piece's
};

// When things happened to a request: seconds of the steady clock; 0: never.
struct AnswerTimes {
  double arrival = 0;
  double begin = 0;  // its first step
  double first_token = 0;
  double last_token = 0;
  double end = 0;
};

struct AnswerEnd {
  AnswerReason reason = AnswerReason::stop;
  std::optional<Error> error;  // of AnswerReason::error
  std::string stop;            // the stop text that ended it
  std::optional<int32_t> stop_id;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, whose keys were there
  int64_t answer_tokens = 0;  // sampled, what ended the answer among them
  int64_t preemptions = 0;
  AnswerTimes times;
};

// Who receives an answer. Calls come in order, from one thread of the engine, and must not block:
// a sink that has to wait for somebody keeps what it is given and returns.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // Log-probabilities of the prompt's tokens from the second on, before the first piece; only where
  // they were asked for.
  virtual void on_prompt(std::span<const SampledToken> /*tokens*/) {}
  // False ends the request, with AnswerReason::abort.
  virtual bool on_piece(const AnswerPiece& piece) = 0;
  // Once, last.
  virtual void on_end(const AnswerEnd& end) = 0;
};

}  // namespace braid
