#pragma once

#include <vector>

#include "braid/server/http/exchange.h"
#include "braid/server/routes/answer_channel.h"
#include "braid/server/schema/fields.h"
#include "braid/server/service.h"

namespace braid::server {

// An event's addition to a choice.
struct ChoicePiece {
  AnswerParts parts;
  std::vector<SampledToken> tokens;  // if log-probabilities are wanted
  std::vector<SampledToken> prompt;  // likewise, once
};

// A choice so far.
struct Choice {
  std::string text;  // its content
  std::string reasoning;
  std::vector<ToolCall> calls;
  std::vector<SampledToken> tokens;  // if log-probabilities are wanted
  std::vector<SampledToken> prompt_tokens;
  int64_t prompt_length = 0;     // tokens
  int64_t answer_tokens = 0;     // so far
  int64_t reasoning_tokens = 0;  // set at the end
  // Up to the call that completes the answer; 0: the answer ends by itself. Tokens that are
  // computed until the request's end is noticed depend on time and do not count.
  int64_t needed_tokens = 0;
  std::optional<AnswerEnd> end;
};

// JSON form of answers: chat completions, text completions or a response. A form serves a single
// request, and may keep the text so far.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;
  // A stream's first events. `choices` here and below: all choices so far.
  virtual std::vector<StreamEvent> begin(const std::vector<Choice>& choices) = 0;
  // The events for a piece of a choice; none without a stream.
  virtual std::vector<StreamEvent> piece(size_t index, const ChoicePiece& piece,
                                         const std::vector<Choice>& choices) = 0;
  // The events behind the last piece of a choice.
  virtual std::vector<StreamEvent> last(size_t index, const std::vector<Choice>& choices) = 0;
  // The last events of a stream: every choice has ended.
  virtual std::vector<StreamEvent> end(const std::vector<Choice>& choices) = 0;
  // The last events in a failed stream.
  virtual std::vector<StreamEvent> failed(const ApiError& error) = 0;
  // The whole answer.
  virtual Json whole(const std::vector<Choice>& choices) = 0;
};

// Tokens of choices, each prompt counted once.
struct Usage {
  int64_t prompt = 0, cached = 0, answer = 0, reasoning = 0;
};
Usage usage_of(const std::vector<Choice>& choices, int choices_per_prompt);

// Sets "approximate" (json_of) where far keys were left out of a choice, with the shares of all
// choices' own computation.
void add_approximation(Json& to, std::span<const Choice> choices);

// A token's text for JSON, and its exact bytes.
std::string token_text(const Tokenizer& tokenizer, int32_t id);
Json token_bytes(const Tokenizer& tokenizer, int32_t id);
// JSON has no infinities: at least -9999.
double finite_logprob(float logprob);
// Each token's {"token", "logprob", "bytes", "top_logprobs"}.
Json token_logprobs(const Tokenizer& tokenizer, const std::vector<SampledToken>& tokens);

// A new id for a call; `format` decides its form.
std::string call_id(CallFormat format);
// Seconds of the Unix epoch.
int64_t unix_seconds();
// An event's data.
std::string event_text(const Json& json);

}  // namespace braid::server
