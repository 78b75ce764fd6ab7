#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/grammar/compiled_grammar.h"
#include "braid/io/tokenizer.h"
#include "braid/text/reasoning_parser.h"

namespace braid {

// The texts of all tokens, special tokens included: marks of reasoning can be either.
struct GrammarSpelling {
  std::vector<std::string> texts;  // by id
  std::vector<int32_t> ends;
  int64_t vocabulary = 0;
};
GrammarSpelling grammar_spelling(const Tokenizer& tokenizer, const GrammarTokens& tokens);

// The masks for an answer that follows a grammar, token by token, as an engine's TokenMask. The
// grammar begins behind the reasoning; inside the reasoning every token is allowed but ends of the
// answer. `spelling` outlives the mask. A copy shares its state: make a mask for each answer.
std::function<std::span<const uint32_t>(std::span<const int32_t>)> grammar_mask(
    std::shared_ptr<const CompiledGrammar> grammar, const GrammarSpelling& spelling,
    const ReasoningMarks& marks);

}  // namespace braid
