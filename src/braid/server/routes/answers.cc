#include "braid/server/routes/answers.h"

#include <fmt/format.h>

#include "braid/base/clock.h"
#include "braid/grammar/grammar_mask.h"
#include "braid/server/routes/answer_form.h"
#include "braid/server/routes/answer_grammar.h"
#include "braid/server/routes/messages.h"
#include "braid/server/routes/request_parts.h"
#include "braid/server/schema/endpoints.h"

namespace braid::server {
namespace {

namespace asio = boost::asio;

constexpr int64_t kMaxBuffered = int64_t{4} << 20;  // bytes that a slow reader may leave unread
constexpr double kCommentSeconds = 5;               // proxies close a connection that says nothing

struct StreamOptions {
  bool stream = false;
  bool usage = false;
  bool usage_always = false;
};

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

// Requests of an exchange; unfinished requests are cancelled at the exchange's end.
class Submitted {
 public:
  explicit Submitted(RequestLoop& loop) : loop_(loop) {}
  ~Submitted() {
    for (const auto& [index, id] : open_) loop_.cancel(id);
  }
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;

  void add(int index, RequestId id) { open_[index] = id; }
  void ended(int index) { open_.erase(index); }
  // Its end comes all the same.
  void cancel(int index) { loop_.cancel(open_.at(index)); }
  bool empty() const { return open_.empty(); }

 private:
  RequestLoop& loop_;
  std::map<int, RequestId> open_;
};

// A finish_reason as clients know it.
std::string_view reason_of(const Choice& choice) {
  if (choice.end->reason == AnswerReason::length) return "length";
  return choice.calls.empty() ? "stop" : "tool_calls";
}

void add_piece(Choice& choice, const AnswerParts& parts) {
  choice.text += parts.content;
  choice.reasoning += parts.reasoning;
  choice.calls.insert(choice.calls.end(), parts.calls.begin(), parts.calls.end());
}

// Computes all choices and answers, whole or as a stream. `parser`: a copy divides each answer.
asio::awaitable<void> run(Service& service, Exchange& exchange, std::vector<AnswerRequest> requests,
                          int choices_per_prompt, StreamOptions options, const AnswerForm& form,
                          const AnswerParser& parser) {
  std::vector<AnswerParser> parsers(requests.size(), parser);
  std::vector<Choice> choices(requests.size());
  const auto channel = std::make_shared<AnswerChannel>(kMaxBuffered, exchange.waker());
  Submitted submitted(service.loop);
  service.metrics.accepted(choices_per_prompt, requests[0].max_tokens);
  for (size_t i = 0; i < requests.size(); ++i) {
    const int index = static_cast<int>(i);
    const auto sink = std::make_shared<ChannelSink>(channel, index, service.metrics);
    try {
      submitted.add(index, service.loop.submit(std::move(requests[i]), sink));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kResource) service.metrics.rejected();
      throw;
    }
  }
  const auto chunk = [&](Json choice) -> std::string {
    Json object = form.head(true);
    object["choices"] = Json::array({std::move(choice)});
    if (options.usage_always) {
      object["usage"] = usage_of(choices, choices_per_prompt);
    } else if (options.usage) {
      object["usage"] = nullptr;
    }
    return object.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  bool begun = false;
  double last_sent = steady_seconds();
  // The stream begins with the first event: an earlier failure still gets a status.
  const auto begin = [&]() -> asio::awaitable<void> {
    begun = true;
    co_await exchange.begin_events();
    for (size_t i = 0; i < choices.size(); ++i) {
      Json first = form.first(static_cast<int>(i));
      if (!first.is_null()) co_await exchange.event(chunk(std::move(first)));
    }
  };

  while (!submitted.empty()) {
    std::optional<AnswerEvent> event = channel->pop();
    if (!event) {
      co_await exchange.wait(kCommentSeconds);
      if (exchange.gone()) co_return;
      if (channel->overflown()) throw ApiError(503, "the client reads too slowly");
      event = channel->pop();
    }
    if (!event) {
      // Nothing came for a while: proxies have to see a sign of life.
      if (options.stream && !begun) co_await begin();
      if (options.stream) co_await exchange.comment();
      continue;
    }
    const int index = event->index;
    Choice& choice = choices[static_cast<size_t>(index)];
    AnswerParser& parts_of = parsers[static_cast<size_t>(index)];
    if (event->end) {
      // A cancelled answer is whole where its parser wanted no more.
      const bool complete = event->end->reason != AnswerReason::abort || parts_of.done();
      submitted.ended(index);
      choice.end = event->end;
      if (event->end->error) throw ApiError(*event->end->error);
      if (!complete) throw ApiError(503, "the request was ended by the server");
    }
    ChoicePiece piece{choice.end ? parts_of.finish() : parts_of.push(event->text),
                      std::move(event->tokens), std::move(event->prompt)};
    add_piece(choice, piece.parts);
    if (choice.end && !choice.reasoning.empty()) {
      choice.reasoning_tokens =
          std::ssize(service.tokenizer().encode(choice.reasoning, {.add_special = false}));
    }
    if (parts_of.done() && !choice.end) submitted.cancel(index);
    if (!options.stream) {
      choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      if (!piece.prompt.empty()) choice.prompt_tokens = std::move(piece.prompt);
      continue;
    }
    if (!begun) co_await begin();
    for (Json& one : form.piece(index, piece, choice)) {
      std::string text = chunk(std::move(one));
      co_await exchange.event(std::move(text));
      last_sent = steady_seconds();
    }
    // A call that grows is held back.
    if (steady_seconds() - last_sent > kCommentSeconds) {
      co_await exchange.comment();
      last_sent = steady_seconds();
    }
    if (choice.end) {
      std::string text = chunk(form.last(index, reason_of(choice)));
      co_await exchange.event(std::move(text));
    }
  }
  const Json usage = usage_of(choices, choices_per_prompt);
  exchange.note =
      fmt::format("prompt {} tokens ({} cached), answer {}", usage["prompt_tokens"].get<int64_t>(),
                  usage["prompt_tokens_details"]["cached_tokens"].get<int64_t>(),
                  usage["completion_tokens"].get<int64_t>());
  if (options.stream) {
    if (options.usage) {
      Json last = form.head(true);
      last["choices"] = Json::array();
      last["usage"] = usage;
      co_await exchange.event(last.dump());
    }
    co_await exchange.event("[DONE]");
    co_await exchange.end_events();
    co_return;
  }
  Json object = form.head(false);
  object["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    object["choices"].push_back(form.whole(static_cast<int>(i), choices[i], reason_of(choices[i])));
  }
  object["usage"] = usage;
  co_await exchange.json(200, object);
}

// Fields that mean nothing here, for the log.
std::string unknown_fields(const Body& body) {
  constexpr size_t kMost = 200;
  std::string names;
  for (const std::string& name : body.unknown()) {
    if (names.size() > kMost) break;
    names += (names.empty() ? ", unknown fields: " : ", ") +
             Json(name.substr(0, 40)).dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  return names;
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

// Binds each answer to the tag's grammar, if there is one. False: the client has gone.
asio::awaitable<bool> constrain(Service& service, Exchange& exchange, const AnswerTag& tag,
                                const ReasoningMarks& marks, std::vector<AnswerRequest>& requests) {
  if (tag.tag.empty()) co_return true;
  const auto grammar = co_await compiled(service, exchange, tag);
  if (grammar == nullptr) co_return false;
  for (AnswerRequest& request : requests)
    request.mask = grammar_mask(grammar, service.grammars->spelling(), marks);
  co_return true;
}

}  // namespace

asio::awaitable<void> chat_completions(Service& service, Exchange& exchange) {
  const Body body(exchange.body(), chat_fields());
  check_model(service, body);
  const StreamOptions options = stream_options(body);
  AnswerRequest base = answer_request(service, body);
  base.key = exchange.client;
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
  const ChatForm form(service, exchange.id, logprobs, chat.format);
  std::vector<std::vector<int32_t>> prompts(1, std::move(chat.prompt));
  const AnswerParser parser = chat.parser();
  std::vector<AnswerRequest> requests = choices_of(base, std::move(prompts), n);
  const AnswerTag tag = answer_tag(body, chat);
  if (!co_await constrain(service, exchange, tag, chat.marks, requests)) co_return;
  co_await run(service, exchange, std::move(requests), n, options, form, parser);
  exchange.note += unknown_fields(body);
}

asio::awaitable<void> completions(Service& service, Exchange& exchange) {
  const Body body(exchange.body(), completion_fields());
  check_model(service, body);
  const StreamOptions options = stream_options(body);
  AnswerRequest base = answer_request(service, body);
  base.key = exchange.client;
  base.continuation = true;
  const auto logprobs = body.integer("logprobs");
  const bool echo = body.boolean("echo", false);
  const bool answer = body.integer("max_tokens") != 0;
  if (!answer && !echo)
    Body::fail("max_tokens", "max_tokens is 0: without echo there is nothing to answer");
  if (!answer) base.max_tokens = 1;  // a step has to end the prompt; its token is dropped
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
  const TextForm form(service, exchange.id, logprobs.has_value(), n, std::move(echoes), answer);
  const AnswerParser parser({}, CallParser(CallFormat::none, {}));
  std::vector<AnswerRequest> requests = choices_of(base, std::move(prompts), n);
  const AnswerTag tag = answer_tag(body);
  const ReasoningMarks none;  // gcc 12 destroys temporaries of such a call twice
  if (!co_await constrain(service, exchange, tag, none, requests)) co_return;
  co_await run(service, exchange, std::move(requests), n, options, form, parser);
  exchange.note += unknown_fields(body);
}

}  // namespace braid::server
