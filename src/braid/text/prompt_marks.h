#pragma once

#include <cstdint>
#include <span>

#include "braid/io/tokenizer.h"
#include "braid/text/reasoning_parser.h"

namespace braid {

// A template's marks for the answer to a prompt: a template may open the reasoning itself, at the
// prompt's end.
ReasoningMarks marks_behind(ReasoningMarks marks, const Tokenizer& tokenizer,
                            std::span<const int32_t> prompt);

}  // namespace braid
