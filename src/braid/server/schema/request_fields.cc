// Fields in each endpoint's body.
#include "braid/server/schema/answer_fields.h"
#include "braid/server/schema/endpoints.h"

namespace braid::server {
namespace {

constexpr std::string_view kMessages = R"("minItems": 1, "items": {"type": "object",
  "properties": {"role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
                 "content": {"type": ["string", "array", "null"]}},
  "required": ["role", "content"]})";
constexpr std::string_view kTools = R"("items": {"type": "object", "properties": {
  "type": {"const": "function"},
  "function": {"type": "object", "required": ["name"], "properties": {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"},
    "description": {"type": "string"}, "parameters": {"type": "object"}}}},
  "required": ["type", "function"]})";

}  // namespace

std::span<const Field> chat_fields() {
  static const std::vector<Field> fields = with_answer_fields({
      {.name = "messages",
       .types = kArray,
       .meaning = "the conversation: objects of `role` (system, developer, user, assistant, tool) "
                  "and `content` (a text, or a list of text parts), with `tool_calls`, "
                  "`tool_call_id`, `name`, `reasoning_content` where there are some",
       .required = true,
       .schema = kMessages},
      {.name = "max_completion_tokens",
       .types = kInteger,
       .meaning = "the newer name of `max_tokens`",
       .least = 0,
       .most = kMostTokens},
      {.name = "logprobs",
       .types = kBoolean,
       .meaning = "log-probabilities of the answer's tokens",
       .otherwise = "false"},
      {.name = "top_logprobs",
       .types = kInteger,
       .meaning = "likely alternatives beside each token",
       .otherwise = "0",
       .least = 0,
       .most = 20},
      {.name = "chat_template_kwargs",
       .types = kObject,
       .meaning = "variables of the chat template"},
      {.name = "reasoning_effort", .types = kString, .meaning = "a variable of the chat template"},
      {.name = "tools",
       .types = kArray,
       .meaning = "functions that the model may call: `{\"type\": \"function\", \"function\": "
                  "{\"name\", \"description\", \"parameters\"}}`",
       .schema = kTools},
      {.name = "tool_choice",
       .types = kString | kObject,
       .meaning = "`auto`; `none`: tools are left out of the prompt; `required`, or `{\"type\": "
                  "\"function\", \"function\": {\"name\"}}`: the answer is calls",
       .otherwise = "auto"},
      {.name = "parallel_tool_calls",
       .types = kBoolean,
       .meaning = "false: an answer ends with its first call",
       .otherwise = "true"},
      refused("functions", "[]"),
      refused("function_call", R"("none", "auto")"),
      refused("guided_json", ""),
      refused("guided_regex", ""),
      refused("guided_choice", ""),
      refused("guided_grammar", ""),
      refused("prediction", ""),
      refused("web_search_options", ""),
  });
  return fields;
}

std::span<const Field> completion_fields() {
  static const std::vector<Field> fields = with_answer_fields({
      {.name = "prompt",
       .types = kString | kArray,
       .meaning = "a text, a list of texts, a list of token ids, or a list of such lists",
       .required = true},
      {.name = "logprobs",
       .types = kInteger,
       .meaning = "log-probabilities, with so many likely alternatives",
       .least = 0,
       .most = 20},
      {.name = "echo",
       .types = kBoolean,
       .meaning = "the prompt is part of the answer; with `logprobs` its tokens are scored",
       .otherwise = "false"},
      refused("suffix", R"("")"),
  });
  return fields;
}

std::span<const Field> tokenize_fields() {
  static const std::vector<Field> fields = {
      {.name = "model", .types = kString, .meaning = "the served model's name, or none"},
      {.name = "prompt", .types = kString, .meaning = "a text"},
      {.name = "content", .types = kString, .meaning = "another name of `prompt`"},
      {.name = "messages",
       .types = kArray,
       .meaning = "a conversation, in place of `prompt`",
       .schema = kMessages},
      {.name = "tools", .types = kArray, .meaning = "of the conversation", .schema = kTools},
      {.name = "add_special_tokens",
       .types = kBoolean,
       .meaning = "put the model's BOS and EOS around a text",
       .otherwise = "true"},
      {.name = "chat_template_kwargs",
       .types = kObject,
       .meaning = "variables of the chat template"},
  };
  return fields;
}

std::span<const Field> detokenize_fields() {
  static const std::vector<Field> fields = {
      {.name = "model", .types = kString, .meaning = "the served model's name, or none"},
      {.name = "tokens",
       .types = kArray,
       .meaning = "token ids",
       .required = true,
       .schema = kIdsSchema},
  };
  return fields;
}

}  // namespace braid::server
