#pragma once

#include <functional>
#include <vector>

#include "braid/engine/chat_prompt.h"

namespace braid {

// Drops the oldest turns of a conversation (a user's message up to the next) until the
// prompt has at most `most` tokens. A leading system message and the last user's message
// stay, so a prompt may still be too long. Returns the dropped messages; `prompt` is the
// rest, encoded.
int drop_oldest_turns(
    std::vector<ChatMessage>& messages, int64_t most,
    const std::function<std::vector<int32_t>(const std::vector<ChatMessage>&)>& encode,
    std::vector<int32_t>& prompt);

}  // namespace braid
