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

// The texts of all tokens, of special ones too: marks of reasoning can be either.
struct GrammarSpelling {
  std::vector<std::string> texts;  // by id
  std::vector<int32_t> ends;
  int64_t vocabulary = 0;
};
GrammarSpelling grammar_spelling(const Tokenizer& tokenizer, const GrammarTokens& tokens);

// The masks of an answer that follows a grammar, token by token, as a TokenMask of the engine. The
// grammar begins behind the reasoning; inside the reasoning every token may come but those that end
// the answer. `spelling` outlives the mask. A copy shares its state: make one for each answer.
std::function<std::span<const uint32_t>(std::span<const int32_t>)> grammar_mask(
    std::shared_ptr<const CompiledGrammar> grammar, const GrammarSpelling& spelling,
    const ReasoningMarks& marks);

}  // namespace braid
