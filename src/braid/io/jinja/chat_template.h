#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "braid/io/jinja/template.h"

namespace braid {

// A chat template's input.
struct ChatInput {
  nlohmann::ordered_json messages;   // array of objects: {"role": ..., "content": ...}
  nlohmann::ordered_json tools;      // array of JSON schemas, or null
  nlohmann::ordered_json documents;  // array, or null
  bool add_generation_prompt = true;
  nlohmann::ordered_json variables;  // object of others, such as enable_thinking; or null
};

// A model's chat template with its special tokens. Gives the text of Hugging Face's
// apply_chat_template(tokenize=False). Thread-safe; jinja/template.h lists supported features.
class ChatTemplate {
 public:
  // `special_tokens` is an object of texts: bos_token, eos_token, ... Throws kMalformed or
  // kUnsupported with the line where `source` cannot be parsed.
  ChatTemplate(std::string_view source, nlohmann::ordered_json special_tokens);

  // Throws kInvalidArgument for input that the template refuses or that is no conversation (with
  // raise_exception's message), kResource past a limit.
  std::string render(const ChatInput& input, const jinja::RenderOptions& options = {}) const;

 private:
  jinja::Template template_;
  nlohmann::ordered_json special_tokens_;
};

// The template in a tokenizer_config.json; nothing without a template. Among named templates,
// "tool_use" serves requests with tools, "default" all others.
std::optional<std::string> find_chat_template(const nlohmann::ordered_json& tokenizer_config,
                                              bool with_tools);
// The special tokens for ChatTemplate: members named *_token, and members named by
// extra_special_tokens or model_specific_special_tokens; strings or {"content": ...}.
nlohmann::ordered_json find_special_tokens(const nlohmann::ordered_json& tokenizer_config);

}  // namespace braid
