#include "braid/io/padded_prompt.h"

#include <span>

#include "braid/base/error.h"

namespace braid {

PaddedPrompt padded_prompt(const Tokenizer& tokenizer, std::string_view text, int64_t length) {
  const int32_t pad = tokenizer.special().pad;
  if (pad < 0) fail(ErrorCode::kUnsupported, "the tokenizer of prompts has no padding token");
  const auto prefix = tokenizer.prefix(), suffix = tokenizer.suffix();
  const auto frame = static_cast<int64_t>(prefix.size() + suffix.size());
  if (length < frame || length > INT32_MAX) {
    fail(ErrorCode::kInvalidArgument, "prompts of {} tokens, at least {} are needed", length,
         frame);
  }
  std::vector<int32_t> inner =
      tokenizer.encode(text, {.add_special = false, .parse_special = true});
  PaddedPrompt prompt;
  const auto room = static_cast<size_t>(length - frame);
  if (inner.size() > room) {
    prompt.cut = tokenizer.decode(std::span(inner).subspan(room), {.continuation = true});
    while (prompt.cut.ends_with(' ')) prompt.cut.pop_back();
    inner.resize(room);
  }
  prompt.ids.assign(prefix.begin(), prefix.end());
  prompt.ids.insert(prompt.ids.end(), inner.begin(), inner.end());
  prompt.ids.insert(prompt.ids.end(), suffix.begin(), suffix.end());
  prompt.tokens = static_cast<int64_t>(prompt.ids.size());
  prompt.ids.resize(static_cast<size_t>(length), pad);
  return prompt;
}

}  // namespace braid
