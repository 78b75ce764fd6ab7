#include "braid/engine/diffusion/prompt_cache.h"

#include <fmt/format.h>

namespace braid {

const EncodedPrompt& PromptCache::get(const std::string& encoder, const std::string& prompt,
                                      int64_t length,
                                      const std::function<EncodedPrompt()>& encode) {
  return kept_.get(fmt::format("{} {} {}", encoder, length, prompt), encode);
}

}  // namespace braid
