#include "braid/engine/chat_window.h"

#include <algorithm>
#include <iterator>

namespace braid {

int drop_oldest_turns(
    std::vector<ChatMessage>& messages, int64_t most,
    const std::function<std::vector<int32_t>(const std::vector<ChatMessage>&)>& encode,
    std::vector<int32_t>& prompt) {
  int dropped = 0;
  for (;;) {
    prompt = encode(messages);
    if (std::ssize(prompt) <= most) return dropped;
    const auto is_user = [](const ChatMessage& m) { return m.role == "user"; };
    const auto first = std::ranges::find_if(messages, is_user);
    if (first == messages.end()) return dropped;
    const auto next = std::find_if(first + 1, messages.end(), is_user);
    if (next == messages.end()) return dropped;
    dropped += static_cast<int>(next - first);
    messages.erase(first, next);
  }
}

}  // namespace braid
