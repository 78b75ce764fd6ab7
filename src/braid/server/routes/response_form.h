#pragma once

#include <string>
#include <utility>
#include <vector>

#include "braid/server/routes/answer_form.h"

namespace braid::server {

// An answer as a response: items of reasoning, messages and calls, in arrival order. A stream's
// events open an item, bring its text and close the item before the next.
class ResponseForm : public AnswerForm {
 public:
  struct Options {
    std::string id;  // the request's: ids of the response and its items derive from it
    bool stream = false;
    bool logprobs = false;
    CallFormat calls = CallFormat::none;  // decides the form of call ids
    Json settings;  // members of the response that repeat the request or its defaults
  };
  ResponseForm(const Service& service, Options options);

  std::vector<StreamEvent> begin(const std::vector<Choice>& choices) override;
  std::vector<StreamEvent> piece(size_t index, const ChoicePiece& piece,
                                 const std::vector<Choice>& choices) override;
  std::vector<StreamEvent> last(size_t index, const std::vector<Choice>& choices) override;
  std::vector<StreamEvent> end(const std::vector<Choice>& choices) override;
  std::vector<StreamEvent> failed(const ApiError& error) override;
  Json whole(const std::vector<Choice>& choices) override;

 private:
  enum class Open { nothing, reasoning, message };

  // The response so far.
  Json response(const char* status) const;
  // The same at the end, with the usage.
  Json ended(const std::vector<Choice>& choices);

  void add_event(const char* type, Json members);
  std::vector<StreamEvent> taken() { return std::exchange(events_, {}); }
  // Opens an item, the last in output_, after the open item is closed.
  void open_item(Json item, const char* id_prefix);
  void open_text(Open kind);
  void add_text(Open kind, const std::string& text, const std::vector<SampledToken>& tokens);
  void add_call(const ToolCall& call);
  // `status`: completed or incomplete.
  void close(const char* status);
  // An event about a part of the open item.
  void part_event(const char* type, Json more);

  const Service& service_;
  const Options options_;
  const int64_t created_ = unix_seconds();
  Json output_ = Json::array();
  Open open_ = Open::nothing;
  std::vector<SampledToken> pending_;  // tokens with held-back text
  std::vector<StreamEvent> events_;    // not yet given out
  int64_t sequence_ = 0;               // the next event's
};

}  // namespace braid::server
