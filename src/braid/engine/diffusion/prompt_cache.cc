#include "braid/engine/diffusion/prompt_cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid {

const EncodedPrompt& PromptCache::get(const std::string& encoder, const std::string& prompt,
                                      int64_t length,
                                      const std::function<EncodedPrompt()>& encode) {
  const std::string key = fmt::format("{} {} {}", encoder, length, prompt);
  const auto found = std::ranges::find(kept_, key, &std::pair<std::string, EncodedPrompt>::first);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().second;
  }
  EncodedPrompt made = encode();
  if (kept_.size() == kEntries) kept_.pop_back();
  return kept_.emplace_front(key, std::move(made)).second;
}

}  // namespace braid
