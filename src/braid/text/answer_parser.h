#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "braid/text/call_parser.h"
#include "braid/text/reasoning_parser.h"

namespace braid {

// An answer piece's additions to each part of a message.
struct AnswerParts {
  std::string reasoning, content;
  std::vector<ToolCall> calls;

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// Divides an answer into reasoning, content and calls of functions. Calls are looked for behind the
// reasoning. Every way to cut an answer into pieces gives the same parts.
class AnswerParser {
 public:
  // Without marks and format all is content.
  AnswerParser(ReasoningMarks marks, CallParser calls)
      : reasoning_(std::move(marks)), calls_(std::move(calls)) {}

  AnswerParts push(std::string_view piece) {
    ReasoningDelta text = reasoning_.push(piece);
    CallDelta rest = calls_.push(text.rest);
    return {std::move(text.reasoning), std::move(rest.content), std::move(rest.calls)};
  }
  // The answer has ended.
  AnswerParts finish() {
    ReasoningDelta text = reasoning_.finish();
    CallDelta rest = calls_.push(text.rest);
    CallDelta last = calls_.finish();
    std::ranges::move(last.calls, std::back_inserter(rest.calls));
    return {std::move(text.reasoning), rest.content + last.content, std::move(rest.calls)};
  }
  // The allowed call is complete; nothing later counts.
  bool done() const { return calls_.done(); }

 private:
  ReasoningParser reasoning_;
  CallParser calls_;
};

}  // namespace braid
