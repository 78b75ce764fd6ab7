#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/requests/request_loop.h"

namespace braid {

// Text of an answer, and the tokens since the previous text.
struct AnswerText {
  std::string text;
  std::vector<SampledToken> tokens;  // where the request lists tokens or log-probabilities
};

// A whole answer.
struct Answer {
  std::string text;
  std::vector<SampledToken> tokens;  // as of AnswerText
  std::vector<SampledToken> prompt;  // log-probabilities of the prompt's tokens from the second on
  AnswerEnd end;
};

// A request of a RequestLoop whose caller reads the answer at leisure: pieces wait here
// until taken. For a single thread. The loop may end before the stream: the answer has then
// ended.
class AnswerStream {
 public:
  // Submits the request; fails as RequestLoop::submit does. `ready` is called from a thread of the
  // engine whenever a piece or the end has come, and must not block; it may be empty.
  AnswerStream(RequestLoop& loop, AnswerRequest request, std::function<void()> ready = {});
  // Cancels an answer that has not ended.
  ~AnswerStream();
  AnswerStream(const AnswerStream&) = delete;
  AnswerStream& operator=(const AnswerStream&) = delete;

  // The next piece, for which the call waits. Nothing: the answer has ended. Fails with the
  // answer's error.
  std::optional<AnswerText> next();
  // Whether a piece or the end is there, or comes within `seconds`.
  bool wait(double seconds);
  // Whether the answer has ended, or ends within `seconds`; pieces may still wait here.
  bool wait_for_end(double seconds);
  // Ends the answer with AnswerReason::abort, soon.
  void cancel();
  // All that has not been taken, up to the end. Fails with the answer's error.
  Answer rest();

  RequestId id() const { return id_; }
  // Once next() has returned nothing.
  const AnswerEnd& end() const;

 private:
  class Queue;

  RequestLoop& loop_;
  std::shared_ptr<Queue> queue_;
  RequestId id_ = 0;
};

}  // namespace braid
