// Fields of /v1/responses.
#include "braid/server/schema/answer_fields.h"
#include "braid/server/schema/endpoints.h"

namespace braid::server {
namespace {

constexpr std::string_view kTools = R"("items": {"type": "object", "required": ["name"],
  "properties": {"type": {"const": "function"},
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"},
    "description": {"type": ["string", "null"]}, "parameters": {"type": ["object", "null"]}}})";
constexpr std::string_view kInclude = R"("items": {"enum": ["message.output_text.logprobs",
  "reasoning.encrypted_content", "file_search_call.results", "web_search_call.results",
  "web_search_call.action.sources", "message.input_image.image_url",
  "computer_call_output.output.image_url", "code_interpreter_call.outputs"]})";

}  // namespace

std::span<const Field> response_fields() {
  static const std::vector<Field> fields = with_answer_fields(
      {
          {.name = "input",
           .types = kString | kArray,
           .meaning = "a text of the user, or a list of items: messages (`role`, `content`), "
                      "`function_call`, `function_call_output`, `reasoning`",
           .required = true,
           .schema = R"("items": {"type": "object"})"},
          {.name = "instructions",
           .types = kString,
           .meaning = "a system message before the input"},
          {.name = "max_output_tokens",
           .types = kInteger,
           .meaning = "tokens of the answer at most, reasoning included",
           .otherwise = "until the context is full",
           .least = 1,
           .most = kMostTokens},
          {.name = "text",
           .types = kObject,
           .meaning =
               "`format`: `{\"type\": \"json_schema\", \"name\", \"schema\"}`, `json_object` "
               "or `text`; `verbosity`: a variable of the chat template"},
          {.name = "reasoning",
           .types = kObject,
           .meaning = "`effort`: the variable `reasoning_effort` of the chat template"},
          {.name = "include",
           .types = kArray,
           .meaning = "`message.output_text.logprobs`: log-probabilities; OpenAI's other values "
                      "change nothing",
           .schema = kInclude},
          {.name = "top_logprobs",
           .types = kInteger,
           .meaning =
               "likely alternatives beside each token; above 0 log-probabilities are included",
           .otherwise = "0",
           .least = 0,
           .most = 20},
          {.name = "tools",
           .types = kArray,
           .meaning = "functions that the model may call: `{\"type\": \"function\", \"name\", "
                      "\"description\", \"parameters\"}`",
           .schema = kTools},
          {.name = "tool_choice",
           .types = kString | kObject,
           .meaning = "`auto`; `none`: tools are left out of the prompt; `required`, or "
                      "`{\"type\": \"function\", \"name\"}`: the answer is calls",
           .otherwise = "auto"},
          {.name = "parallel_tool_calls",
           .types = kBoolean,
           .meaning = "false: an answer ends with its first call",
           .otherwise = "true"},
          {.name = "chat_template_kwargs",
           .types = kObject,
           .meaning = "variables of the chat template"},
          {.name = "metadata", .types = kObject, .meaning = "given back in the response"},
          accepted("stream_options"),
          accepted("max_tool_calls"),
          accepted("prompt_cache_options"),
          accepted("prompt_cache_retention"),
          refused("previous_response_id", ""),
          refused("conversation", ""),
          refused("prompt", ""),
          refused("background", "false"),
          refused("truncation", R"("disabled")"),
          refused("context_management", "[]"),
          refused("moderation", ""),
          refused("response_format", ""),
          refused("max_tokens", ""),
          refused("max_completion_tokens", ""),
          refused("n", "1"),
      },
      {"max_tokens", "n", "response_format", "stream_options", "metadata", "audio", "modalities",
       "best_of", "prompt_logprobs"});
  return fields;
}

}  // namespace braid::server
