#include "braid/server/schema/endpoints.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::server {
namespace {

constexpr double kTokens = 1 << 24;  // more than any context has
constexpr std::string_view kIds = R"("items": {"type": "integer", "minimum": 0})";
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

// The schemas of answers, by name.
constexpr std::string_view kAnswers = R"json({
  "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
    "required": ["message", "type", "param", "code"], "properties": {
      "message": {"type": "string"}, "type": {"type": "string"},
      "param": {"type": ["string", "null"]}, "code": {"type": "integer"}}}}},
  "Usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {"prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"},
                   "total_tokens": {"type": "integer"}}},
  "ChatCompletion": {"type": "object", "required": ["id", "object", "created", "model", "choices",
    "usage"], "properties": {"object": {"const": "chat.completion"},
      "choices": {"type": "array", "items": {"type": "object",
        "required": ["index", "message", "finish_reason"], "properties": {
          "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
          "message": {"type": "object", "required": ["role", "content"], "properties": {
            "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
            "reasoning_content": {"type": "string"}, "tool_calls": {"type": "array"}}}}}},
      "usage": {"$ref": "#/components/schemas/Usage"}}},
  "Completion": {"type": "object", "required": ["id", "object", "created", "model", "choices",
    "usage"], "properties": {"object": {"const": "text_completion"},
      "choices": {"type": "array", "items": {"type": "object",
        "required": ["index", "text", "finish_reason"], "properties": {
          "finish_reason": {"enum": ["stop", "length"]}, "text": {"type": "string"}}}},
      "usage": {"$ref": "#/components/schemas/Usage"}}},
  "Rendered": {"type": "object", "required": ["prompt", "prompt_token_ids"], "properties": {
    "prompt": {"type": "string"},
    "prompt_token_ids": {"type": "array", "items": {"type": "integer"}}}},
  "Tokens": {"type": "object", "required": ["tokens", "count", "max_model_len"], "properties": {
    "tokens": {"type": "array", "items": {"type": "integer"}}, "count": {"type": "integer"},
    "max_model_len": {"type": "integer"}}},
  "Text": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
  "Models": {"type": "object", "required": ["object", "data"], "properties": {
    "object": {"const": "list"}, "data": {"type": "array", "items": {"type": "object",
      "required": ["id", "object", "created", "owned_by"]}}}},
  "Status": {"type": "object", "required": ["status"],
             "properties": {"status": {"type": "string"}}},
  "Version": {"type": "object", "required": ["version"],
              "properties": {"version": {"type": "string"}}},
  "Document": {"type": "object", "required": ["openapi", "paths"]}
})json";

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
       .meaning = "a text, or up to 16, that ends the answer",
       .schema = R"("items": {"type": "string", "minLength": 1}, "maxItems": 16, "minLength": 1)"},
      {.name = "stop_token_ids",
       .types = kArray,
       .meaning = "token ids that end the answer",
       .schema = kIds},
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
      {.name = "response_format",
       .types = kObject,
       .meaning = "`{\"type\": \"json_schema\", \"json_schema\": {\"schema\": ...}}`: the answer "
                  "is JSON that fulfils the schema; `json_object`: any object; `text`: anything"},
      {.name = "structured_outputs",
       .types = kObject,
       .meaning =
           "one of `json` (a schema), `regex`, `choice` (a list of texts), `grammar` (EBNF), "
           "`json_object` (true), which the whole answer follows"},
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
      refused("prompt_logprobs", ""),
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
                  "and `content` (a text, or a list of text parts), with `tool_calls`, "
                  "`tool_call_id`, `name`, `reasoning_content` where there are some",
       .required = true,
       .schema = kMessages},
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
      {.name = "tokens", .types = kArray, .meaning = "token ids", .required = true, .schema = kIds},
  };
  return fields;
}

std::span<const Endpoint> endpoints() {
  static const std::vector<Endpoint> all = {
      {"POST", "/v1/chat/completions", "answers a conversation", chat_fields(), false,
       "ChatCompletion"},
      {"POST", "/v1/completions", "continues a text", completion_fields(), false, "Completion"},
      {"POST", "/v1/chat/completions/render",
       "the prompt that a conversation becomes, as text and ids", chat_fields(), false, "Rendered"},
      {"POST", "/tokenize", "text or messages to token ids", tokenize_fields(), false, "Tokens"},
      {"POST", "/detokenize", "token ids to text", detokenize_fields(), false, "Text"},
      {"GET", "/v1/models", "the served model", {}, false, "Models"},
      {"GET", "/health", "200 once requests are answered, 503 before and after", {}, true},
      {"GET", "/health/ready", "the same", {}, true},
      {"GET", "/health/live", "200 as long as the engine's thread turns", {}, true},
      {"GET", "/version", "Braid's version", {}, true, "Version"},
      {"GET", "/metrics", "counters for Prometheus", {}, true, ""},
      {"GET", "/openapi.json", "this list, for programs", {}, true, "Document"},
  };
  return all;
}

Json openapi(std::string_view version) {
  const auto json_of = [](std::string_view schema) -> Json {
    return {{"application/json",
             {{"schema", {{"$ref", fmt::format("#/components/schemas/{}", schema)}}}}}};
  };
  Json paths = Json::object();
  for (const Endpoint& endpoint : endpoints()) {
    std::string method(endpoint.method);
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    Json content = Json::object();
    if (endpoint.answer.empty()) content["text/plain"] = {{"schema", {{"type", "string"}}}};
    if (!endpoint.answer.empty()) content = json_of(endpoint.answer);
    const bool streams =
        std::ranges::any_of(endpoint.fields, [](const Field& f) { return f.name == "stream"; });
    if (streams) content["text/event-stream"] = {{"schema", {{"type", "string"}}}};
    Json operation = {
        {"summary", endpoint.summary},
        {"responses",
         {{"200", {{"description", "the answer"}, {"content", std::move(content)}}},
          {"default", {{"description", "an error"}, {"content", json_of("Error")}}}}}};
    if (!endpoint.fields.empty()) {
      operation["requestBody"] = {
          {"required", true},
          {"content", {{"application/json", {{"schema", schema_of(endpoint.fields)}}}}}};
    }
    if (!endpoint.open)
      operation["security"] = Json::array({{{"key", Json::array()}}, Json::object()});
    paths[std::string(endpoint.path)][method] = std::move(operation);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Braid"}, {"version", version}}},
          {"components",
           {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}},
            {"schemas", Json::parse(kAnswers)}}},
          {"paths", std::move(paths)}};
}

namespace {
bool same_row(const Field& a, const Field& b) {
  return a.name == b.name && a.types == b.types && a.meaning == b.meaning &&
         a.otherwise == b.otherwise && a.least == b.least && a.most == b.most &&
         a.effect == b.effect && a.required == b.required;
}

// The table of an endpoint's fields; rows equal to the conversation table's are only named.
std::string fields_table(std::span<const Field> fields) {
  const std::span<const Field> known = chat_fields();
  std::vector<Field> rows;
  std::string named;
  for (const Field& field : fields) {
    const bool again =
        fields.data() != known.data() && field.effect == Effect::used &&
        std::ranges::any_of(known, [&](const Field& other) { return same_row(field, other); });
    if (again) named += fmt::format("{}`{}`", named.empty() ? "" : ", ", field.name);
    if (!again) rows.push_back(field);
  }
  std::string text = table_of(rows);
  if (!named.empty()) text += "\nAs for `/v1/chat/completions`: " + named + ".\n";
  return text;
}
}  // namespace

std::string endpoint_tables() {
  std::string text = "| method | path | answers |\n|---|---|---|\n";
  for (const Endpoint& e : endpoints())
    text += fmt::format("| {} | `{}` | {} |\n", e.method, e.path, e.summary);
  for (const Endpoint& e : endpoints()) {
    if (e.fields.empty() || e.path.ends_with("/render")) continue;
    text += fmt::format("\n### {} {}\n\n{}", e.method, e.path, fields_table(e.fields));
  }
  return text;
}

}  // namespace braid::server
