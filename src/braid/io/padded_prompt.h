#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer.h"

namespace braid {

// A prompt for a text encoder: a fixed number of tokens.
struct PaddedPrompt {
  std::vector<int32_t> ids;  // [length]
  int64_t tokens = 0;        // the prompt's tokens, with BOS and EOS
  std::string cut;           // text of tokens that did not fit; empty if all fit
};

// Encodes `text` as transformers' tokenizers do with padding to `length` and truncation: the
// model's prefix and suffix stay, tokens in between are cut, the padding token (that of
// SpecialIds::pad) fills up. Text that spells a special token becomes that token. Fails with
// kInvalidArgument where `length` has no room for prefix and suffix, with kUnsupported where the
// tokenizer has no padding token.
PaddedPrompt padded_prompt(const Tokenizer& tokenizer, std::string_view text, int64_t length);

}  // namespace braid
