#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "braid/engine/requests/bounded_queue.h"
#include "braid/engine/requests/request_steps.h"

namespace braid {

// A thread that makes text of tokens and hands the text to sinks, in the order of the calls. A
// sleeping thread gets all tokens up to wake() together. A call waits while too many tokens are
// without text.
class AnswerOutputs {
 public:
  using Written = std::function<void(const ActiveRequest& request, bool end)>;

  // The thread calls `written` after each output: whether that was the request's end.
  explicit AnswerOutputs(Written written);
  ~AnswerOutputs() { finish(); }
  AnswerOutputs(const AnswerOutputs&) = delete;
  AnswerOutputs& operator=(const AnswerOutputs&) = delete;

  // Any thread; calls for the same request come one by one. The caller keeps the request alive
  // until end(). With `soon` the text is made at once, else after wake(). Facts are copied now.
  void prompt(ActiveRequest& request);
  void token(ActiveRequest& request, const SampledToken& token, bool soon);
  void wake() { outputs_.wake(); }
  // Called by the loop's thread. The request's facts say how it ended. Its sink hears of the end at
  // the first look() or settle() after workers have left the request's masks.
  void end(std::shared_ptr<ActiveRequest> request);
  void look();
  void settle();
  // Returns once all outputs are with their sinks; no call follows.
  void finish();

 private:
  struct Prompt {};
  struct Token {
    SampledToken token;
    AnswerFacts facts;
  };
  using End = std::shared_ptr<ActiveRequest>;
  // An End is a request's last output and owns the request; earlier outputs only point to it.
  struct Output {
    ActiveRequest* request = nullptr;
    std::variant<Prompt, Token, End> what;
  };

  void write();
  void write(Output& output);

  const Written written_;
  BoundedQueue<Output> outputs_;
  std::vector<std::shared_ptr<ActiveRequest>> ended_;  // whose sinks have not heard
  std::thread thread_;
};

}  // namespace braid
