#include "braid/engine/requests/answer_writer.h"

#include "braid/base/clock.h"

namespace braid {
std::string_view to_string(AnswerReason reason) {
  switch (reason) {
    case AnswerReason::stop:
      return "stop";
    case AnswerReason::length:
      return "length";
    case AnswerReason::abort:
      return "abort";
    case AnswerReason::error:
      return "error";
  }
  return "error";
}

AnswerWriter::AnswerWriter(const AnswerRequest& request, const Tokenizer& tokenizer,
                           std::shared_ptr<AnswerSink> sink)
    : tokenizer_(tokenizer),
      sink_(std::move(sink)),
      list_tokens_(request.list_tokens || request.sampling.logprobs >= 0),
      masked_(static_cast<bool>(request.mask)),
      decoder_(tokenizer,
               {.skip_special = request.skip_special, .continuation = request.continuation}),
      text_(request.stop, request.include_stop) {}

void AnswerWriter::give(std::string_view text) {
  if (text.empty() && tokens_.empty()) return;
  const std::span<const SampledToken> tokens = tokens_;
  bool wanted = true;
  size_t first = 0;
  for (size_t i = 0; i + 1 < tokens.size() && wanted; ++i) {
    const auto [end, answer_tokens] = places_[i];
    if (end >= given_ + text.size()) break;
    if (end == given_) continue;  // a part of a character
    const std::string_view own = text.substr(0, end - given_);
    wanted = sink_->on_piece({own, tokens.subspan(first, i + 1 - first), answer_tokens});
    text.remove_prefix(own.size());
    given_ = end;
    first = i + 1;
  }
  wanted = wanted && sink_->on_piece({text, tokens.subspan(first), answer_tokens_});
  given_ += text.size();
  tokens_.clear();
  places_.clear();
  if (!wanted && !closed()) closed_.store(true, std::memory_order_release);
}

void AnswerWriter::token(const SampledToken& token, const AnswerFacts& so_far) {
  if (closed()) return;
  answer_tokens_ = so_far.answer_tokens;
  // A head may be padded with rows that no token has: such an id has no text.
  const bool known = token.id < tokenizer_.vocab_size();
  const std::string decoded = known ? decoder_.push(token.id) : "";
  decoded_ += decoded.size();
  const std::string text = text_.push(decoded);
  if (list_tokens_) {
    tokens_.push_back(token);
    places_.push_back({decoded_, answer_tokens_});
  }
  if (!text_.found()) {
    if (!text.empty()) give(text);
    if (closed()) close({so_far, AnswerReason::abort}, masked_);
    return;
  }
  give(text);
  close({so_far, AnswerReason::stop, {}, *text_.found()}, masked_);
}

void AnswerWriter::end(AnswerEnd end) {
  if (kept_) sink_->on_end(*kept_);
  if (closed()) return;
  answer_tokens_ = end.answer_tokens;
  if (end.reason == AnswerReason::stop || end.reason == AnswerReason::length) {
    std::string rest = text_.push(decoder_.finish());
    if (text_.found()) {
      end.reason = AnswerReason::stop;
      end.stop = *text_.found();
    }
    rest += text_.finish();
    give(rest);
  }
  close(std::move(end), false);
}

void AnswerWriter::close(AnswerEnd end, bool keep) {
  end.times.end = steady_seconds();
  if (keep) kept_ = end;
  closed_.store(true, std::memory_order_release);
  if (!keep) sink_->on_end(end);
}

}  // namespace braid
