#pragma once

#include <functional>
#include <string>

#include "braid/base/recently_used.h"
#include "braid/engine/diffusion/text_encoders.h"

namespace braid {

// The latest encoded prompts, an entry for each encoder: a repeated prompt costs no encoding, and
// needs no encoder in memory. One thread at a time.
class PromptCache {
 public:
  static constexpr size_t kEntries = 16;  // 512 states of T5 XXL have 8 MiB

  // The prompt by the named encoder with `length` tokens: the kept one, or a new one of `encode`.
  // Beyond kEntries the least recently used goes. The reference lives until the next get().
  const EncodedPrompt& get(const std::string& encoder, const std::string& prompt, int64_t length,
                           const std::function<EncodedPrompt()>& encode);

 private:
  RecentlyUsed<EncodedPrompt> kept_{kEntries};
};

}  // namespace braid
