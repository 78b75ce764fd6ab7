#include <fmt/format.h>

#include <algorithm>

#include "braid/server/routes/answer_grammar.h"
#include "braid/server/routes/answer_run.h"
#include "braid/server/routes/answers.h"
#include "braid/server/routes/messages.h"
#include "braid/server/routes/request_parts.h"
#include "braid/server/routes/response_form.h"
#include "braid/server/routes/response_input.h"
#include "braid/server/schema/endpoints.h"

namespace braid::server {
namespace {

constexpr std::string_view kLogprobs = "message.output_text.logprobs";
// These ask for parts of items that no model here makes.
constexpr std::string_view kWithoutEffect[] = {
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
};

// Whether `include` asks for log-probabilities.
bool includes_logprobs(const Body& body) {
  const Json* include = body.find("include");
  if (include == nullptr) return false;
  bool found = false;
  for (const Json& one : *include) {
    const std::string name = one.is_string() ? one.get<std::string>() : one.dump();
    found = found || name == kLogprobs;
    if (name != kLogprobs && std::ranges::find(kWithoutEffect, name) == std::end(kWithoutEffect))
      Body::fail("include", fmt::format("include has '{}', wanted {}", name, kLogprobs));
  }
  return found;
}

// The shortest number for the same float.
double shortest(float value) {
  return std::stod(fmt::format("{}", value));
}

// Request settings repeated in a response, with defaults for missing fields.
Json settings_of(const Body& body, const SamplingParams& sampling) {
  const auto given = [&](const char* name, Json otherwise) {
    const Json* value = body.find(name);
    return value == nullptr ? otherwise : *value;
  };
  Json text = given("text", Json::object());
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  Json reasoning = {{"effort", nullptr}, {"summary", nullptr}};
  reasoning.update(given("reasoning", Json::object()));
  return {{"background", false},
          {"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"max_tool_calls", given("max_tool_calls", nullptr)},
          {"metadata", given("metadata", Json::object())},
          {"parallel_tool_calls", given("parallel_tool_calls", true)},
          {"previous_response_id", nullptr},
          {"prompt_cache_key", given("prompt_cache_key", nullptr)},
          {"reasoning", std::move(reasoning)},
          {"safety_identifier", given("safety_identifier", nullptr)},
          {"service_tier", "default"},
          {"store", false},
          {"temperature", shortest(sampling.temperature)},
          {"text", std::move(text)},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", Json::array())},
          {"top_logprobs", given("top_logprobs", 0)},
          {"top_p", shortest(sampling.top_p)},
          {"truncation", "disabled"},
          {"user", given("user", nullptr)}};
}

}  // namespace

boost::asio::awaitable<void> responses(Service& service, Exchange& exchange) {
  const Body body(exchange.body(), response_fields());
  check_model(service, body);
  check_template(service);
  std::vector<AnswerRequest> requests(1, answer_request(service, body, exchange.client));
  AnswerRequest& request = requests[0];
  request.max_tokens = body.integer("max_output_tokens", 0);
  const int64_t top = body.integer("top_logprobs", 0);
  const bool logprobs = includes_logprobs(body) || top > 0;
  if (logprobs) request.sampling.logprobs = static_cast<int>(top);
  ToolUse use = tool_use(service, body, ToolForm::flat);
  ChatRequest chat = chat_request(service, response_conversation(body), std::move(use));
  if (chat.show_special) request.skip_special = false;
  request.prompt = std::move(chat.prompt);
  const bool stream = body.boolean("stream", false);
  ResponseForm form(service, {.id = exchange.id,
                              .stream = stream,
                              .logprobs = logprobs,
                              .calls = chat.format,
                              .settings = settings_of(body, request.sampling)});
  const AnswerTag tag = answer_tag(body, chat);
  const AnswerParser parser = chat.parser();
  if (!co_await constrain(service, exchange, tag, chat.marks, requests)) co_return;
  co_await answer(service, exchange, std::move(requests), 1, stream, form, parser);
  exchange.note += unknown_fields(body);
}

}  // namespace braid::server
