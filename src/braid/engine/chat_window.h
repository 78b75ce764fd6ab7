#pragma once

#include <functional>
#include <vector>

#include "braid/engine/chat_prompt.h"

namespace braid {

// Drops the oldest turns of a conversation, each a user's message and what follows until the next,
// until its prompt has at most `most` tokens. A system message at the beginning and the last user's
// message stay, so that a prompt may still be too long. Returns the messages that were dropped;
// `prompt` is what is left, encoded.
int drop_oldest_turns(
    std::vector<ChatMessage>& messages, int64_t most,
    const std::function<std::vector<int32_t>(const std::vector<ChatMessage>&)>& encode,
    std::vector<int32_t>& prompt);

}  // namespace braid
