#include "braid/server/routes/answer_run.h"

#include <fmt/format.h>

#include <map>

#include "braid/base/clock.h"

namespace braid::server {
namespace {

namespace asio = boost::asio;

constexpr int64_t kMaxBuffered = int64_t{4} << 20;  // bytes a slow reader may leave unread
constexpr double kCommentSeconds = 5;               // proxies close a silent connection
constexpr double kLook = 1;                         // seconds between two looks at the engine

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
  // The answer's end still comes.
  void cancel(int index) { loop_.cancel(open_.at(index)); }
  bool empty() const { return open_.empty(); }

 private:
  RequestLoop& loop_;
  std::map<int, RequestId> open_;
};

void add_piece(Choice& choice, const AnswerParts& parts) {
  choice.text += parts.content;
  choice.reasoning += parts.reasoning;
  choice.calls.insert(choice.calls.end(), parts.calls.begin(), parts.calls.end());
}

// An exchange's answer on its way.
struct Run {
  Service& service;
  Exchange& exchange;
  AnswerForm& form;
  const bool stream;
  std::vector<Choice> choices;
  bool begun = false;  // the stream's first event went out: a failure gets no status any more
};

asio::awaitable<void> send(Run& run, std::vector<StreamEvent> events) {
  for (const StreamEvent& event : events) co_await run.exchange.event(event);
}

asio::awaitable<void> begin(Run& run) {
  if (run.begun || !run.stream) co_return;
  run.begun = true;
  co_await run.exchange.begin_events();
  std::vector<StreamEvent> first = run.form.begin(run.choices);
  co_await send(run, std::move(first));
}

// Waits for all choices; a stream sends pieces as they come.
asio::awaitable<void> take_all(Run& run, std::vector<AnswerRequest>& requests,
                               std::vector<AnswerParser>& parsers) {
  Exchange& exchange = run.exchange;
  RequestLoop& loop = run.service.loop;
  const auto channel = std::make_shared<AnswerChannel>(kMaxBuffered, exchange.waker());
  Submitted submitted(loop);
  for (size_t i = 0; i < requests.size(); ++i) {
    const int index = static_cast<int>(i);
    const auto sink = std::make_shared<ChannelSink>(channel, index, run.service.metrics);
    run.choices[i].prompt_length = std::ssize(requests[i].prompt);
    try {
      submitted.add(index, loop.submit(std::move(requests[i]), sink));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kResource) run.service.metrics.rejected();
      throw;
    }
  }
  double last_sent = steady_seconds();
  while (!submitted.empty()) {
    std::optional<AnswerEvent> event = channel->pop();
    if (!event) {
      co_await exchange.wait(kLook);
      if (exchange.gone()) co_return;
      if (channel->overflown()) throw ApiError(503, "the client reads too slowly");
      event = channel->pop();
    }
    if (!event) {
      run.service.check_engine();
      if (steady_seconds() - last_sent < kCommentSeconds) continue;
      last_sent = steady_seconds();
      // Nothing came for a while: proxies have to see a sign of life.
      co_await begin(run);
      if (run.stream) co_await exchange.comment();
      continue;
    }
    const auto index = static_cast<size_t>(event->index);
    Choice& choice = run.choices[index];
    AnswerParser& parts_of = parsers[index];
    if (event->answer_tokens > 0) choice.answer_tokens = event->answer_tokens;
    if (event->end) {
      // A cancelled answer is whole if its parser wanted no more.
      const bool complete = event->end->reason != AnswerReason::abort || parts_of.done();
      submitted.ended(event->index);
      choice.end = event->end;
      if (choice.needed_tokens > 0) choice.end->answer_tokens = choice.needed_tokens;
      if (const auto& error = event->end->error) {
        // Here the model is malformed, not the request.
        if (error->code() == ErrorCode::kMalformed) throw ApiError(500, error->what());
        throw ApiError(*error);
      }
      if (!complete) throw ApiError(503, "the request was ended by the server");
    }
    ChoicePiece piece{choice.end ? parts_of.finish() : parts_of.push(event->text),
                      std::move(event->tokens), std::move(event->prompt)};
    add_piece(choice, piece.parts);
    if (choice.end && !choice.reasoning.empty()) {
      choice.reasoning_tokens =
          std::ssize(run.service.tokenizer().encode(choice.reasoning, {.add_special = false}));
    }
    if (parts_of.done() && !choice.end) {
      if (choice.needed_tokens == 0) choice.needed_tokens = event->answer_tokens;
      submitted.cancel(event->index);
    }
    co_await begin(run);
    std::vector<StreamEvent> events = run.form.piece(index, piece, run.choices);
    if (!run.stream) {
      choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      if (!piece.prompt.empty()) choice.prompt_tokens = std::move(piece.prompt);
      continue;
    }
    if (!events.empty()) {
      co_await send(run, std::move(events));
      last_sent = steady_seconds();
    } else if (steady_seconds() - last_sent > kCommentSeconds) {
      co_await exchange.comment();  // a growing call is held back
      last_sent = steady_seconds();
    }
    if (choice.end) {
      std::vector<StreamEvent> last = run.form.last(index, run.choices);
      co_await send(run, std::move(last));
    }
  }
}

}  // namespace

asio::awaitable<void> answer(Service& service, Exchange& exchange,
                             std::vector<AnswerRequest> requests, int choices_per_prompt,
                             bool stream, AnswerForm& form, const AnswerParser& parser) {
  service.metrics.accepted(choices_per_prompt, requests[0].max_tokens);
  std::vector<AnswerParser> parsers(requests.size(), parser);
  Run run{service, exchange, form, stream, std::vector<Choice>(requests.size())};
  std::optional<ApiError> failed;
  try {
    co_await take_all(run, requests, parsers);
  } catch (const ApiError& error) {
    failed = error;
  } catch (const Error& error) {
    failed = ApiError(error);
  }
  if (failed && !run.begun) throw ApiError(*failed);
  if (exchange.gone()) co_return;
  if (failed) {
    exchange.note = failed->what();
  } else {
    const Usage usage = usage_of(run.choices, choices_per_prompt);
    const bool approximate = std::ranges::any_of(
        run.choices, [](const Choice& choice) { return choice.end && choice.end->approximate; });
    exchange.note = fmt::format("prompt {} tokens ({} cached), answer {}{}", usage.prompt,
                                usage.cached, usage.answer, approximate ? ", approximate" : "");
  }
  if (stream) {
    std::vector<StreamEvent> last = failed ? form.failed(*failed) : form.end(run.choices);
    co_await send(run, std::move(last));
    co_await exchange.end_events();
  } else {
    const Json whole = form.whole(run.choices);
    co_await exchange.json(200, whole);
  }
}

}  // namespace braid::server
