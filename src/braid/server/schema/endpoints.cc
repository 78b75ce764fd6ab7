#include "braid/server/schema/endpoints.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::server {
namespace {

// Schemas for answers, by name.
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
      "system_fingerprint": {"type": "string"},
      "choices": {"type": "array", "items": {"type": "object",
        "required": ["index", "message", "finish_reason"], "properties": {
          "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
          "message": {"type": "object", "required": ["role", "content"], "properties": {
            "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
            "reasoning_content": {"type": "string"}, "tool_calls": {"type": "array"}}}}}},
      "usage": {"$ref": "#/components/schemas/Usage"}}},
  "Completion": {"type": "object", "required": ["id", "object", "created", "model", "choices",
    "usage"], "properties": {"object": {"const": "text_completion"},
      "system_fingerprint": {"type": "string"},
      "choices": {"type": "array", "items": {"type": "object",
        "required": ["index", "text", "finish_reason"], "properties": {
          "finish_reason": {"enum": ["stop", "length"]}, "text": {"type": "string"}}}},
      "usage": {"$ref": "#/components/schemas/Usage"}}},
  "Response": {"type": "object", "required": ["id", "object", "created_at", "status", "model",
    "output", "error", "incomplete_details", "usage", "tools", "tool_choice",
    "parallel_tool_calls"], "properties": {"object": {"const": "response"},
      "status": {"enum": ["completed", "incomplete"]},
      "output": {"type": "array", "items": {"type": "object", "required": ["type", "id", "status"],
        "properties": {"type": {"enum": ["reasoning", "message", "function_call"]}}}}}},
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
  "Stats": {"type": "object", "required": ["model", "running", "waiting", "steps", "kv_pages"]},
  "Status": {"type": "object", "required": ["status"],
             "properties": {"status": {"type": "string"}}},
  "Version": {"type": "object", "required": ["version"],
              "properties": {"version": {"type": "string"}}},
  "Document": {"type": "object", "required": ["openapi", "paths"]}
})json";

}  // namespace

std::span<const Endpoint> endpoints() {
  static const std::vector<Endpoint> all = {
      {"POST", "/v1/chat/completions", "answers a conversation", chat_fields(), false,
       "ChatCompletion"},
      {"POST", "/v1/completions", "continues a text", completion_fields(), false, "Completion"},
      {"POST", "/v1/responses", "answers a conversation of items; nothing is stored",
       response_fields(), false, "Response"},
      {"POST", "/v1/chat/completions/render",
       "the prompt that a conversation becomes, as text and ids", chat_fields(), false, "Rendered"},
      {"POST", "/tokenize", "text or messages to token ids", tokenize_fields(), false, "Tokens"},
      {"POST", "/detokenize", "token ids to text", detokenize_fields(), false, "Text"},
      {"GET", "/v1/models", "the served model", {}, false, "Models"},
      {"GET", "/health", "200 once requests are answered, 503 before and after", {}, true},
      {"GET", "/health/ready", "the same", {}, true},
      {"GET", "/health/live", "200 as long as the engine's thread turns", {}, true},
      {"GET", "/version", "Braid's version", {}, true, "Version"},
      {"GET", "/metrics", "counters for Prometheus", {}, true, "", "text/plain"},
      {"GET", "/stats", "the same counts as JSON, for the page", {}, true, "Stats"},
      {"GET",
       "/step.svg",
       "lanes of a recent step; CPU ranks alone",
       {},
       true,
       "",
       "image/svg+xml"},
      {"GET", "/", "a page to chat and to watch", {}, true, "", "text/html"},
      {"GET", "/page.css", "a part of the page", {}, true, "", "text/css"},
      {"GET", "/page.js", "a part of the page", {}, true, "", "text/javascript"},
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
    if (endpoint.answer.empty())
      content[std::string(endpoint.type)] = {{"schema", {{"type", "string"}}}};
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
