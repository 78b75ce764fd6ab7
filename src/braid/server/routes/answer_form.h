#pragma once

#include "braid/server/routes/answer_channel.h"
#include "braid/server/schema/fields.h"
#include "braid/server/service.h"

namespace braid::server {

// What an event adds to a choice.
struct ChoicePiece {
  AnswerParts parts;
  std::vector<SampledToken> tokens;  // where log-probabilities are wanted
  std::vector<SampledToken> prompt;  // likewise, once
};

// One choice as far as it has come.
struct Choice {
  std::string text;  // its content
  std::string reasoning;
  std::vector<ToolCall> calls;
  std::vector<SampledToken> tokens;  // where log-probabilities are wanted
  std::vector<SampledToken> prompt_tokens;
  int64_t reasoning_tokens = 0;  // once it has ended
  std::optional<AnswerEnd> end;
};

// How answers look in JSON: as chat completions or as text completions.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;
  // Members of every object: id, object, created, model.
  virtual Json head(bool chunk) const = 0;
  // The first chunk of a choice's stream, null for none.
  virtual Json first(int index) const = 0;
  // A choice in the chunks that bring a piece. `choice` has everything so far, this piece included.
  virtual std::vector<Json> piece(int index, const ChoicePiece& piece,
                                  const Choice& choice) const = 0;
  // A choice in the last chunk of its stream.
  virtual Json last(int index, std::string_view reason) const = 0;
  // A whole choice.
  virtual Json whole(int index, const Choice& choice, std::string_view reason) const = 0;
};

// Text of a token for JSON, and its exact bytes.
std::string token_text(const Tokenizer& tokenizer, int32_t id);
Json token_bytes(const Tokenizer& tokenizer, int32_t id);
// JSON has no infinities: at least -9999.
double finite_logprob(float logprob);

Json usage_of(const std::vector<Choice>& choices, int choices_per_prompt);

class ChatForm : public AnswerForm {
 public:
  // `calls`: the format that decides the form of call ids.
  ChatForm(const Service& service, std::string id, bool logprobs, CallFormat calls);
  Json head(bool chunk) const override;
  Json first(int index) const override;
  std::vector<Json> piece(int index, const ChoicePiece& piece, const Choice& choice) const override;
  Json last(int index, std::string_view reason) const override;
  Json whole(int index, const Choice& choice, std::string_view reason) const override;

 private:
  Json logprobs_of(const std::vector<SampledToken>& tokens) const;

  const Service& service_;
  const std::string id_;
  const bool logprobs_;
  const CallFormat calls_;
  const int64_t created_;
};

class TextForm : public AnswerForm {
 public:
  // `echo`: texts and ids of the prompts, to begin choices with; empty: no echo.
  struct Echo {
    std::vector<std::string> texts;
    std::vector<std::vector<int32_t>> ids;
  };
  TextForm(const Service& service, std::string id, bool logprobs, int choices_per_prompt, Echo echo,
           bool answer);
  Json head(bool chunk) const override;
  Json first(int index) const override;
  std::vector<Json> piece(int index, const ChoicePiece& piece, const Choice& choice) const override;
  Json last(int index, std::string_view reason) const override;
  Json whole(int index, const Choice& choice, std::string_view reason) const override;

 private:
  struct Scored {
    int32_t id;
    const SampledToken* token;  // null: the first of a prompt
  };
  Json logprobs_of(const std::vector<Scored>& tokens, size_t offset) const;
  size_t prompt_of(int index) const { return static_cast<size_t>(index / per_prompt_); }

  const Service& service_;
  const std::string id_;
  const bool logprobs_;
  const int per_prompt_;
  const Echo echo_;
  const bool answer_;  // false: max_tokens is 0, only the prompt is scored
  const int64_t created_;
};

}  // namespace braid::server
