#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/loaded_model.h"
#include "braid/io/jinja/chat_template.h"

namespace braid {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Parts of a prompt: messages as in OpenAI's API, with texts as contents and objects as arguments
// of calls.
struct ChatMessages {
  nlohmann::ordered_json messages;   // list of objects
  nlohmann::ordered_json tools;      // list of OpenAI's function descriptions, or null
  nlohmann::ordered_json variables;  // of the template: an object, or null
};

// Turns a conversation into a prompt with the model's own chat template. What messages, tools and
// variables say stays plain text, even where it spells a special token; only the template's own
// text is taken for special tokens.
class ChatPrompt {
 public:
  // Fails with kUnsupported when the model brings no template. `loaded` outlives it.
  explicit ChatPrompt(const LoadedModel& loaded);
  ChatPrompt(const Tokenizer& tokenizer, ChatTemplate chat_template);  // `tokenizer` outlives it

  // The prompt up to the begin of the assistant's answer. Fails with kInvalidArgument if the
  // template refuses the messages, or would make special tokens from their text.
  std::vector<int32_t> encode_conversation(const ChatMessages& conversation) const;
  std::vector<int32_t> encode(const std::vector<ChatMessage>& messages) const;

  // The template writes descriptions of tools into the prompt; found by rendering a description.
  bool knows_tools() const { return knows_tools_; }
  // Of the template for requests with tools.
  const std::string& source() const { return source_; }

 private:
  void probe();
  std::string render(const ChatInput& input) const;

  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  std::optional<ChatTemplate> tool_template_;  // if requests with tools have a separate template
  std::string source_;
  bool knows_tools_ = false;
  bool wants_parts_ = false;  // the template takes contents as lists of parts alone
};

}  // namespace braid
