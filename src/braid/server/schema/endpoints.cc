#include "braid/server/schema/endpoints.h"

#include <fmt/format.h>

namespace braid::server {
namespace {

constexpr double kTokens = 1 << 24;  // more than any context has

// What chat and completions share.
const std::vector<Field>& answer_fields() {
  static const std::vector<Field> fields = {
      {.name = "model", .types = kString, .meaning = "the served model's name, or none"},
      {.name = "max_tokens",
       .types = kInteger,
       .meaning = "tokens of the answer at most",
       .otherwise = "until the context is full",
       .least = 0,
       .most = kTokens},
      {.name = "min_tokens",
       .types = kInteger,
       .meaning = "tokens before the answer may end by itself",
       .otherwise = "0",
       .least = 0,
       .most = kTokens},
      {.name = "temperature",
       .types = kNumber,
       .meaning = "0: the most likely token",
       .otherwise = "the model's, else 1",
       .least = 0,
       .most = 2},
      {.name = "top_p",
       .types = kNumber,
       .meaning = "choose among tokens that make up this probability, above 0",
       .otherwise = "the model's, else 1",
       .least = 1e-9,
       .most = 1},
      {.name = "top_k",
       .types = kInteger,
       .meaning = "choose among so many tokens; 0 and -1: all",
       .otherwise = "the model's, else 0",
       .least = -1,
       .most = kTokens},
      {.name = "min_p",
       .types = kNumber,
       .meaning = "drop tokens less likely than this share of the best",
       .otherwise = "0",
       .least = 0,
       .most = 1},
      {.name = "seed",
       .types = kInteger,
       .meaning = "the same seed gives the same text",
       .otherwise = "random"},
      {.name = "frequency_penalty",
       .types = kNumber,
       .meaning = "for each earlier occurrence in the answer",
       .otherwise = "0",
       .least = -2,
       .most = 2},
      {.name = "presence_penalty",
       .types = kNumber,
       .meaning = "for tokens that occurred in the answer",
       .otherwise = "0",
       .least = -2,
       .most = 2},
      {.name = "repetition_penalty",
       .types = kNumber,
       .meaning = "for tokens of prompt and answer; 1: none",
       .otherwise = "1",
       .least = 1e-3,
       .most = 100},
      {.name = "logit_bias",
       .types = kObject,
       .meaning = "token id (as text) to a bias from -100 to 100"},
      {.name = "n",
       .types = kInteger,
       .meaning = "answers to one prompt",
       .otherwise = "1",
       .least = 1,
       .most = 128},
      {.name = "stop",
       .types = kString | kArray,
       .meaning = "a text, or up to 16, that ends the answer"},
      {.name = "stop_token_ids", .types = kArray, .meaning = "token ids that end the answer"},
      {.name = "include_stop_str_in_output",
       .types = kBoolean,
       .meaning = "the stop text is part of the answer",
       .otherwise = "false"},
      {.name = "ignore_eos",
       .types = kBoolean,
       .meaning = "go on after an end-of-text token",
       .otherwise = "false"},
      {.name = "skip_special_tokens",
       .types = kBoolean,
       .meaning = "special tokens have no text",
       .otherwise = "true"},
      {.name = "stream",
       .types = kBoolean,
       .meaning = "send the answer as it is made, as server-sent events",
       .otherwise = "false"},
      {.name = "stream_options",
       .types = kObject,
       .meaning = "`include_usage`: a last chunk with the usage; `continuous_usage_stats`: usage "
                  "in every chunk"},
      {.name = "cache_salt",
       .types = kString,
       .meaning = "requests of different salts share no cached prompt"},
      accepted("user"),
      accepted("store"),
      accepted("metadata"),
      accepted("service_tier"),
      accepted("prompt_cache_key"),
      accepted("safety_identifier"),
      accepted("priority"),
      refused("audio", ""),
      refused("modalities", R"(["text"])"),
      refused("best_of", "1"),
  };
  return fields;
}

std::vector<Field> with_answer_fields(std::vector<Field> fields) {
  fields.insert(fields.end(), answer_fields().begin(), answer_fields().end());
  return fields;
}

}  // namespace

std::span<const Field> chat_fields() {
  static const std::vector<Field> fields = with_answer_fields({
      {.name = "messages",
       .types = kArray,
       .meaning = "the conversation: objects of `role` (system, developer, user, assistant, tool) "
                  "and `content` (a text, or a list of text parts)",
       .required = true},
      {.name = "max_completion_tokens",
       .types = kInteger,
       .meaning = "the newer name of `max_tokens`",
       .least = 0,
       .most = kTokens},
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
      accepted("reasoning_effort"),
      accepted("parallel_tool_calls"),
      refused("tools", "[]"),
      refused("tool_choice", R"("none", "auto")"),
      refused("functions", "[]"),
      refused("function_call", R"("none", "auto")"),
      refused("response_format", R"({"type": "text"})"),
      refused("structured_outputs", "{}"),
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
      refused("response_format", R"({"type": "text"})"),
      refused("structured_outputs", "{}"),
  });
  return fields;
}

std::span<const Field> tokenize_fields() {
  static const std::vector<Field> fields = {
      {.name = "model", .types = kString, .meaning = "the served model's name, or none"},
      {.name = "prompt", .types = kString, .meaning = "a text"},
      {.name = "content", .types = kString, .meaning = "another name of `prompt`"},
      {.name = "messages", .types = kArray, .meaning = "a conversation, in place of `prompt`"},
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
      {.name = "tokens", .types = kArray, .meaning = "token ids", .required = true},
  };
  return fields;
}

std::span<const Endpoint> endpoints() {
  static const std::vector<Endpoint> all = {
      {"POST", "/v1/chat/completions", "answers a conversation", chat_fields()},
      {"POST", "/v1/completions", "continues a text", completion_fields()},
      {"POST", "/v1/chat/completions/render",
       "the prompt that a conversation becomes, as text and ids", chat_fields()},
      {"POST", "/tokenize", "text or messages to token ids", tokenize_fields()},
      {"POST", "/detokenize", "token ids to text", detokenize_fields()},
      {"GET", "/v1/models", "the served model"},
      {"GET", "/health", "200 once requests are answered, 503 before and after", {}, true},
      {"GET", "/health/ready", "the same", {}, true},
      {"GET", "/health/live", "200 as long as the engine's thread turns", {}, true},
      {"GET", "/version", "Braid's version", {}, true},
      {"GET", "/metrics", "counters for Prometheus", {}, true},
      {"GET", "/openapi.json", "this list, for programs", {}, true},
  };
  return all;
}

Json openapi(std::string_view version) {
  Json paths = Json::object();
  for (const Endpoint& endpoint : endpoints()) {
    std::string method(endpoint.method);
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    Json operation = {{"summary", endpoint.summary},
                      {"responses",
                       {{"200", {{"description", "the answer"}}},
                        {"default", {{"description", "an error object"}}}}}};
    if (!endpoint.fields.empty()) {
      operation["requestBody"] = {
          {"required", true},
          {"content", {{"application/json", {{"schema", schema_of(endpoint.fields)}}}}}};
    }
    if (!endpoint.open) operation["security"] = Json::array({{{"key", Json::array()}}});
    paths[std::string(endpoint.path)][method] = std::move(operation);
  }
  return {
      {"openapi", "3.1.0"},
      {"info", {{"title", "Braid"}, {"version", version}}},
      {"components", {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"paths", std::move(paths)}};
}

std::string endpoint_tables() {
  std::string text = "| method | path | answers |\n|---|---|---|\n";
  for (const Endpoint& e : endpoints())
    text += fmt::format("| {} | `{}` | {} |\n", e.method, e.path, e.summary);
  for (const Endpoint& e : endpoints()) {
    if (e.fields.empty() || e.path.ends_with("/render")) continue;
    text += fmt::format("\n### {} {}\n\n{}", e.method, e.path, table_of(e.fields));
  }
  return text;
}

}  // namespace braid::server
