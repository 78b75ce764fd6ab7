#pragma once

#include <string>
#include <vector>

#include "braid/engine/loaded_model.h"
#include "braid/io/jinja/chat_template.h"

namespace braid {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Turns a conversation into a prompt with the model's own chat template. What messages say stays
// plain text, even where it spells a special token; only the template's own text is taken for
// special tokens.
class ChatPrompt {
 public:
  // Fails with kUnsupported when the model brings no template. `loaded` outlives it.
  explicit ChatPrompt(const LoadedModel& loaded);
  ChatPrompt(const Tokenizer& tokenizer, ChatTemplate chat_template);  // `tokenizer` outlives it

  // The prompt up to where the assistant's answer begins. Fails with kInvalidArgument where the
  // template refuses the messages, or would make special tokens out of their text.
  std::vector<int32_t> encode(const std::vector<ChatMessage>& messages) const;

 private:
  const Tokenizer& tokenizer_;
  ChatTemplate template_;
};

}  // namespace braid
