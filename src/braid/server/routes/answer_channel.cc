#include "braid/server/routes/answer_channel.h"

#include "braid/base/clock.h"

namespace braid::server {
namespace {

constexpr int64_t kEventBytes = 64;  // an event's own, about

}  // namespace

bool AnswerChannel::push(AnswerEvent event) {
  {
    const std::lock_guard lock(mutex_);
    bytes_ += std::ssize(event.text) + kEventBytes * (1 + std::ssize(event.tokens));
    // The end is never lost: a waiter has to hear of the end.
    if (bytes_ > max_bytes_ && !event.end) {
      overflown_ = true;
      return false;
    }
    events_.push_back(std::move(event));
  }
  wake_();
  return true;
}

std::optional<AnswerEvent> AnswerChannel::pop() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return {};
  AnswerEvent event = std::move(events_.front());
  events_.pop_front();
  bytes_ -= std::ssize(event.text) + kEventBytes * (1 + std::ssize(event.tokens));
  return event;
}

bool AnswerChannel::overflown() const {
  const std::lock_guard lock(mutex_);
  return overflown_;
}

void ChannelSink::on_prompt(std::span<const SampledToken> tokens) {
  channel_->push({.index = index_, .prompt = {tokens.begin(), tokens.end()}});
}

bool ChannelSink::on_piece(const AnswerPiece& piece) {
  const double now = steady_seconds();
  if (last_ > 0) metrics_.token_gap(now - last_);
  last_ = now;
  return channel_->push({.index = index_,
                         .text = std::string(piece.text),
                         .tokens = {piece.tokens.begin(), piece.tokens.end()},
                         .answer_tokens = piece.answer_tokens});
}

void ChannelSink::on_end(const AnswerEnd& end) {
  metrics_.ended(end);
  channel_->push({.index = index_, .end = end});
}

}  // namespace braid::server
