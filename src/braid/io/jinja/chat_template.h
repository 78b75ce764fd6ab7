#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "braid/io/jinja/template.h"

namespace braid {

// What a chat template makes a prompt of.
struct ChatInput {
  nlohmann::ordered_json messages;   // array of objects: {"role": ..., "content": ...}
  nlohmann::ordered_json tools;      // array of JSON schemas, or null
  nlohmann::ordered_json documents;  // array, or null
  bool add_generation_prompt = true;
  nlohmann::ordered_json variables;  // object of others, such as enable_thinking; or null
};

// A model's chat template with the special tokens that it may name. Gives what Hugging Face's
// apply_chat_template(tokenize=False) gives. Thread-safe; jinja/template.h says what is supported.
class ChatTemplate {
 public:
  // `special_tokens` is an object of texts: bos_token, eos_token, ... Throws kMalformed or
  // kUnsupported with the line where `source` cannot be parsed.
  ChatTemplate(std::string_view source, nlohmann::ordered_json special_tokens);

  // Throws kInvalidArgument for input that the template refuses or that is no conversation (the
  // message of raise_exception is passed through), kResource where a limit is exceeded.
  std::string render(const ChatInput& input, const jinja::RenderOptions& options = {}) const;

 private:
  jinja::Template template_;
  nlohmann::ordered_json special_tokens_;
};

// The template in a tokenizer_config.json, nothing where there is none. Of several that have
// names, "tool_use" serves requests with tools, "default" the others.
std::optional<std::string> find_chat_template(const nlohmann::ordered_json& tokenizer_config,
                                              bool with_tools);
// Its special tokens as ChatTemplate takes them: members named *_token, and those that
// extra_special_tokens or model_specific_special_tokens name; strings or {"content": ...}.
nlohmann::ordered_json find_special_tokens(const nlohmann::ordered_json& tokenizer_config);

}  // namespace braid
