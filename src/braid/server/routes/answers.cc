#include "braid/server/routes/answers.h"

#include <fmt/format.h>

#include "braid/server/routes/answer_grammar.h"
#include "braid/server/routes/answer_run.h"
#include "braid/server/routes/choices_form.h"
#include "braid/server/routes/messages.h"
#include "braid/server/routes/request_parts.h"
#include "braid/server/schema/endpoints.h"

namespace braid::server {
namespace {

namespace asio = boost::asio;

StreamOptions stream_options(const Body& body) {
  StreamOptions options{.stream = body.boolean("stream", false)};
  const Json* given = body.find("stream_options");
  if (given == nullptr) return options;
  if (!options.stream) Body::fail("stream_options", "stream_options goes with stream: true");
  const auto flag = [&](const char* name) {
    const auto it = given->find(name);
    if (it == given->end() || it->is_null()) return false;
    if (!it->is_boolean())
      Body::fail("stream_options", fmt::format("stream_options.{} is no boolean", name));
    return it->get<bool>();
  };
  options.usage = flag("include_usage");
  options.usage_always = flag("continuous_usage_stats");
  return options;
}

// A request for each choice of each prompt. With a seed, every choice has a separate seed.
std::vector<AnswerRequest> choices_of(const AnswerRequest& base,
                                      std::vector<std::vector<int32_t>> prompts, int n) {
  constexpr uint64_t kSeedStep = 0x9e3779b97f4a7c55u;
  std::vector<AnswerRequest> all;
  for (std::vector<int32_t>& prompt : prompts) {
    for (int i = 0; i < n; ++i) {
      all.push_back(base);
      all.back().prompt = prompt;
      all.back().sampling.seed = base.sampling.seed + static_cast<uint64_t>(i) * kSeedStep;
    }
  }
  return all;
}

}  // namespace

asio::awaitable<void> chat_completions(Service& service, Exchange& exchange) {
  const Body body(exchange.body(), chat_fields());
  check_model(service, body);
  const StreamOptions options = stream_options(body);
  AnswerRequest base = answer_request(service, body, exchange.client);
  const bool logprobs = body.boolean("logprobs", false);
  if (logprobs) base.sampling.logprobs = static_cast<int>(body.integer("top_logprobs", 0));
  if (!logprobs && body.integer("top_logprobs", 0) > 0) {
    Body::fail("top_logprobs", "top_logprobs goes with logprobs: true");
  }
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (body.integer(name) == 0) Body::fail(name, fmt::format("{} is 0, wanted at least 1", name));
  }
  const int n = static_cast<int>(body.integer("n", 1));
  ChatRequest chat = chat_request(service, body);
  if (chat.show_special) base.skip_special = false;
  ChatForm form(service, {"chatcmpl-" + exchange.id, options, n, logprobs}, chat.format);
  std::vector<std::vector<int32_t>> prompts(1, std::move(chat.prompt));
  const AnswerParser parser = chat.parser();
  std::vector<AnswerRequest> requests = choices_of(base, std::move(prompts), n);
  const AnswerTag tag = answer_tag(body, chat);
  if (!co_await constrain(service, exchange, tag, chat.marks, requests)) co_return;
  co_await answer(service, exchange, std::move(requests), n, options.stream, form, parser);
  exchange.note += unknown_fields(body);
}

asio::awaitable<void> completions(Service& service, Exchange& exchange) {
  const Body body(exchange.body(), completion_fields());
  check_model(service, body);
  const StreamOptions options = stream_options(body);
  AnswerRequest base = answer_request(service, body, exchange.client);
  base.continuation = true;
  const auto logprobs = body.integer("logprobs");
  const bool echo = body.boolean("echo", false);
  const bool with_answer = body.integer("max_tokens") != 0;
  if (!with_answer && !echo)
    Body::fail("max_tokens", "max_tokens is 0: without echo there is nothing to answer");
  if (!with_answer) base.max_tokens = 1;  // a step has to end the prompt; its token is dropped
  if (logprobs) base.sampling.logprobs = static_cast<int>(*logprobs);
  if (logprobs && echo) base.prompt_logprobs = static_cast<int>(*logprobs);
  std::vector<std::vector<int32_t>> prompts;
  TextForm::Echo echoes;
  for (TextPrompt& prompt : text_prompts(service, *body.find("prompt"))) {
    if (echo) {
      echoes.texts.push_back(std::move(prompt.text));
      echoes.ids.push_back(prompt.ids);
    }
    prompts.push_back(std::move(prompt.ids));
  }
  const int n = static_cast<int>(body.integer("n", 1));
  if (prompts.size() * static_cast<size_t>(n) > 2048) {
    Body::fail("n",
               fmt::format("{} prompts with {} choices each: at most 2048 answers in one request",
                           prompts.size(), n));
  }
  TextForm form(service, {"cmpl-" + exchange.id, options, n, logprobs.has_value()},
                std::move(echoes), with_answer);
  const AnswerParser parser({}, CallParser(CallFormat::none, {}));
  std::vector<AnswerRequest> requests = choices_of(base, std::move(prompts), n);
  const AnswerTag tag = answer_tag(body);
  const ReasoningMarks none;  // gcc 12 destroys such a call's temporaries twice
  if (!co_await constrain(service, exchange, tag, none, requests)) co_return;
  co_await answer(service, exchange, std::move(requests), n, options.stream, form, parser);
  exchange.note += unknown_fields(body);
}

}  // namespace braid::server
