#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "braid/server/routes/answer_form.h"

namespace braid::server {

// How a stream is wanted, by the fields stream and stream_options.
struct StreamOptions {
  bool stream = false;
  bool usage = false;         // a last chunk with the usage
  bool usage_always = false;  // usage in every chunk
};

// Answers as a list of choices: chat completions and text completions.
class ChoicesForm : public AnswerForm {
 public:
  struct Common {
    std::string id;  // the answer's
    StreamOptions stream;
    int choices_per_prompt = 1;
    bool logprobs = false;
  };
  std::vector<StreamEvent> begin(const std::vector<Choice>& choices) override;
  std::vector<StreamEvent> piece(size_t index, const ChoicePiece& piece,
                                 const std::vector<Choice>& choices) override;
  std::vector<StreamEvent> last(size_t index, const std::vector<Choice>& choices) override;
  std::vector<StreamEvent> end(const std::vector<Choice>& choices) override;
  std::vector<StreamEvent> failed(const ApiError& error) override;
  Json whole(const std::vector<Choice>& choices) override;

 protected:
  // `object`, `chunk`: the object's name in a whole answer, and in an event.
  ChoicesForm(const Service& service, Common common, const char* object, const char* chunk)
      : service_(service), common_(std::move(common)), object_(object), chunk_(chunk) {}

  // The first chunk of a choice's stream, null for none.
  virtual Json first(size_t index) const = 0;
  // A choice in the chunks that bring a piece.
  virtual std::vector<Json> pieces(size_t index, const ChoicePiece& piece,
                                   const Choice& choice) const = 0;
  // A choice in its stream's last chunk.
  virtual Json final(size_t index, std::string_view reason) const = 0;
  // A whole choice.
  virtual Json whole_choice(size_t index, const Choice& choice, std::string_view reason) const = 0;

  const Service& service_;
  const Common common_;

 private:
  Json head(const char* object) const;
  Json chunk_json(Json choice, const std::vector<Choice>& choices) const;
  StreamEvent chunk(Json choice, const std::vector<Choice>& choices) const;

  const char* const object_;
  const char* const chunk_;
  const int64_t created_ = unix_seconds();
};

class ChatForm : public ChoicesForm {
 public:
  // `calls`: the format that decides the form of call ids.
  ChatForm(const Service& service, Common common, CallFormat calls);

 private:
  Json first(size_t index) const override;
  std::vector<Json> pieces(size_t index, const ChoicePiece& piece,
                           const Choice& choice) const override;
  Json final(size_t index, std::string_view reason) const override;
  Json whole_choice(size_t index, const Choice& choice, std::string_view reason) const override;
  Json logprobs_of(const std::vector<SampledToken>& tokens) const;

  const CallFormat calls_;
};

class TextForm : public ChoicesForm {
 public:
  // `echo`: texts and ids of the prompts, to begin choices with; empty: no echo.
  struct Echo {
    std::vector<std::string> texts;
    std::vector<std::vector<int32_t>> ids;
  };
  // `answer` false: max_tokens is 0, only the prompt is scored.
  TextForm(const Service& service, Common common, Echo echo, bool answer);

 private:
  struct Scored {
    int32_t id;
    const SampledToken* token;  // null: a prompt's first token
  };
  Json first(size_t index) const override;
  std::vector<Json> pieces(size_t index, const ChoicePiece& piece,
                           const Choice& choice) const override;
  Json final(size_t index, std::string_view reason) const override;
  Json whole_choice(size_t index, const Choice& choice, std::string_view reason) const override;
  Json logprobs_of(const std::vector<Scored>& tokens, size_t offset) const;
  size_t prompt_of(size_t index) const {
    return index / static_cast<size_t>(common_.choices_per_prompt);
  }

  const Echo echo_;
  const bool answer_;
};

}  // namespace braid::server
