#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/requests/answer.h"
#include "braid/server/metrics.h"

namespace braid::server {

// A piece of an answer to a request, or the answer's end.
struct AnswerEvent {
  int index = 0;  // the choice's
  std::string text;
  std::vector<SampledToken> tokens;
  int64_t answer_tokens = 0;         // of the choice so far
  std::vector<SampledToken> prompt;  // the prompt's log-probabilities, once
  std::optional<AnswerEnd> end;
};

// Brings events from the engine's threads to the waiting connection. Holds at most `max_bytes` of
// text: a slow reader loses its request, and the server no memory.
class AnswerChannel {
 public:
  AnswerChannel(int64_t max_bytes, std::function<void()> wake)
      : max_bytes_(max_bytes), wake_(std::move(wake)) {}

  // False once the limit is passed.
  bool push(AnswerEvent event);
  std::optional<AnswerEvent> pop();
  bool overflown() const;

 private:
  const int64_t max_bytes_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::deque<AnswerEvent> events_;
  int64_t bytes_ = 0;
  bool overflown_ = false;
};

// Puts one choice's answer into the channel.
class ChannelSink : public AnswerSink {
 public:
  // `metrics` outlives the sink.
  ChannelSink(std::shared_ptr<AnswerChannel> channel, int index, Metrics& metrics)
      : channel_(std::move(channel)), index_(index), metrics_(metrics) {}

  void on_prompt(std::span<const SampledToken> tokens) override;
  bool on_piece(const AnswerPiece& piece) override;
  void on_end(const AnswerEnd& end) override;

 private:
  const std::shared_ptr<AnswerChannel> channel_;
  const int index_;
  Metrics& metrics_;  // hear of every end, with or without a waiting client
  double last_ = 0;   // when the last piece came
};

}  // namespace braid::server
