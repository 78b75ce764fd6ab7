#include "braid/engine/requests/answer_stream.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace braid {

// Holds the engine's output until the stream's owner takes it.
class AnswerStream::Queue : public AnswerSink {
 public:
  explicit Queue(std::function<void()> ready) : ready_(std::move(ready)) {}

  void on_prompt(std::span<const SampledToken> tokens) override {
    const std::lock_guard lock(mutex_);
    prompt_.assign(tokens.begin(), tokens.end());
  }
  bool on_piece(const AnswerPiece& piece) override {
    {
      const std::lock_guard lock(mutex_);
      pieces_.push_back({std::string(piece.text), {piece.tokens.begin(), piece.tokens.end()}});
    }
    tell();
    return true;
  }
  void on_end(const AnswerEnd& end) override {
    {
      const std::lock_guard lock(mutex_);
      end_ = end;
    }
    tell();
  }

  bool wait(double seconds) {
    std::unique_lock lock(mutex_);
    return come_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return there(); });
  }
  bool wait_for_end(double seconds) {
    std::unique_lock lock(mutex_);
    return come_.wait_for(lock, std::chrono::duration<double>(seconds),
                          [&] { return end_.has_value(); });
  }
  std::optional<AnswerText> take() {
    const std::lock_guard lock(mutex_);
    if (!pieces_.empty()) {
      AnswerText piece = std::move(pieces_.front());
      pieces_.pop_front();
      return piece;
    }
    if (end_ && end_->error) throw Error(*end_->error);
    return {};
  }
  std::vector<SampledToken> take_prompt() {
    const std::lock_guard lock(mutex_);
    return std::move(prompt_);
  }
  const std::optional<AnswerEnd>& end() const { return end_; }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return end_.has_value();
  }

 private:
  bool there() const { return !pieces_.empty() || end_; }
  void tell() {
    come_.notify_all();
    if (ready_) ready_();
  }

  const std::function<void()> ready_;
  std::mutex mutex_;
  std::condition_variable come_;
  std::deque<AnswerText> pieces_;
  std::vector<SampledToken> prompt_;
  std::optional<AnswerEnd> end_;
};

AnswerStream::AnswerStream(RequestLoop& loop, AnswerRequest request, std::function<void()> ready)
    : loop_(loop), queue_(std::make_shared<Queue>(std::move(ready))) {
  id_ = loop.submit(std::move(request), queue_);
}

AnswerStream::~AnswerStream() {
  cancel();
}

std::optional<AnswerText> AnswerStream::next() {
  while (!queue_->wait(1)) {  // the engine ends every answer: a step has a deadline
  }
  return queue_->take();
}

bool AnswerStream::wait(double seconds) {
  return queue_->wait(seconds);
}

bool AnswerStream::wait_for_end(double seconds) {
  return queue_->wait_for_end(seconds);
}

void AnswerStream::cancel() {
  if (!queue_->ended()) loop_.cancel(id_);
}

Answer AnswerStream::rest() {
  Answer answer;
  while (std::optional<AnswerText> piece = next()) {
    answer.text += piece->text;
    std::ranges::move(piece->tokens, std::back_inserter(answer.tokens));
  }
  answer.prompt = queue_->take_prompt();
  answer.end = end();
  return answer;
}

const AnswerEnd& AnswerStream::end() const {
  BRAID_CHECK(queue_->end(), "the answer has not ended");
  return *queue_->end();
}

}  // namespace braid
