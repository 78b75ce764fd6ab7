#include "braid/text/prompt_marks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "braid/text/mark_search.h"

namespace braid {

ReasoningMarks marks_behind(ReasoningMarks marks, const Tokenizer& tokenizer,
                            std::span<const int32_t> prompt) {
  constexpr size_t kTail = 16;  // tokens for a mark and the white space behind it
  if (marks.open.empty()) return marks;
  const auto tail = prompt.last(std::min(prompt.size(), kTail));
  std::string text = tokenizer.decode({tail.begin(), tail.end()}, {.skip_special = false});
  text.resize(trim_blanks(text, text.size()));
  marks.opened = text.ends_with(marks.open);
  return marks;
}

}  // namespace braid
