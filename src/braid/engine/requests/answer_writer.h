#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "braid/engine/requests/answer.h"
#include "braid/engine/stop_text.h"
#include "braid/io/tokenizer.h"

namespace braid {

// Makes the text of a request's answer and hands the text to the sink. The loop's thread reports
// tokens; all else happens on the writer's thread.
class AnswerWriter {
 public:
  AnswerWriter(const AnswerRequest& request, const Tokenizer& tokenizer,
               std::shared_ptr<AnswerSink> sink);

  // The writer's thread.
  void prompt(std::span<const SampledToken> tokens) { sink_->on_prompt(tokens); }
  void token(const SampledToken& token, const AnswerFacts& so_far);
  // The loop ends the answer; after an end by stop text or sink the reason stays as it is. Only
  // then does the sink of a request with masks hear of the end: nobody asks for masks any more.
  void end(AnswerEnd end);

  // Any thread: text or sink have ended the answer; the loop need not go on.
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  // If a request lists tokens, each token's text is a separate piece.
  void give(std::string_view text);
  void close(AnswerEnd end, bool keep);

  const Tokenizer& tokenizer_;
  const std::shared_ptr<AnswerSink> sink_;
  const bool list_tokens_, masked_;
  StreamDecoder decoder_;
  StopText text_;
  struct Place {
    size_t end = 0;             // bytes of the answer's text up to the token
    int64_t answer_tokens = 0;  // likewise
  };
  std::vector<SampledToken> tokens_;  // since the last piece, if wanted
  std::vector<Place> places_;         // of tokens_
  size_t decoded_ = 0, given_ = 0;    // bytes of text: in all tokens, in all pieces
  int64_t answer_tokens_ = 0;         // so far
  std::atomic<bool> closed_{false};
  std::optional<AnswerEnd> kept_;  // for end()
};

}  // namespace braid
