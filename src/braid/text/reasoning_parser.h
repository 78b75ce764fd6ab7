#pragma once

#include <string>
#include <string_view>

namespace braid {

// The marks around a model's reasoning, such as <think> and </think>.
struct ReasoningMarks {
  std::string open, close;  // empty: the model has none
  bool opened = false;      // the prompt ends with the opening mark: answers begin inside
};

// The marks that a chat template writes; none without marks.
ReasoningMarks reasoning_marks(std::string_view template_source);

struct ReasoningDelta {
  std::string reasoning;
  std::string rest;
};

// Divides an answer, which comes piece by piece, into reasoning and the rest. White space next to
// the marks belongs to neither. Every way to cut an answer into pieces gives the same two texts.
class ReasoningParser {
 public:
  explicit ReasoningParser(ReasoningMarks marks);

  ReasoningDelta push(std::string_view piece);
  // The answer has ended: returns held-back text. An answer that ends inside is all reasoning.
  ReasoningDelta finish();

 private:
  enum class State { before, begin_inside, inside, behind, outside };

  ReasoningDelta advance(bool ended);

  const ReasoningMarks marks_;
  State state_;
  std::string held_;
};

}  // namespace braid
