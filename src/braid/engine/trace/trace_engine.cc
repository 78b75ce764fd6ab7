#include "braid/engine/trace/trace_engine.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "braid/base/clock.h"

namespace braid {
namespace {

// All answers' events, from the engine's threads.
struct Events {
  std::mutex mutex;
  std::condition_variable ended;
  TraceReplay replay;
  std::optional<Error> error;
  std::optional<Approximation> approximate;
  int64_t open = 0;
};

class Sink final : public AnswerSink {
 public:
  Sink(Events& events, size_t index, double start, bool long_prompt)
      : events_(events), index_(index), start_(start), long_prompt_(long_prompt) {}

  bool on_piece(const AnswerPiece& piece) override {
    const double now = steady_seconds();
    const int64_t tokens = piece.answer_tokens - seen_;
    if (tokens == 0) return true;
    const std::lock_guard lock(events_.mutex);
    if (seen_ == 0) {
      first_piece_ = {now, tokens};
    } else {
      add_gaps(tokens, now - last_);
    }
    seen_ = piece.answer_tokens;
    last_ = now;
    return true;
  }

  void on_end(const AnswerEnd& end) override {
    const std::lock_guard lock(events_.mutex);
    ReplayedRequest& r = events_.replay.requests[index_];
    add_gaps(first_piece_.tokens - 1, first_piece_.at - end.times.first_token);
    r.output = end.answer_tokens;
    r.cached = end.cached_tokens;
    r.first = end.times.first_token - start_;
    r.last = end.times.last_token - start_;
    events_.replay.seconds = std::max(events_.replay.seconds, r.last);
    events_.replay.preemptions += end.preemptions;
    if (end.error && !events_.error) events_.error = end.error;
    if (end.approximate && events_.approximate) {
      events_.approximate->shares += end.approximate->shares;
    } else if (end.approximate) {
      events_.approximate = *end.approximate;
    }
    --events_.open;
    events_.ended.notify_all();
  }

 private:
  // A piece's tokens come together: each gets an equal part of the seconds since the token before.
  void add_gaps(int64_t tokens, double seconds) {
    const TokenGap gap = {static_cast<float>(seconds / static_cast<double>(tokens)), long_prompt_};
    for (int64_t i = 0; i < tokens; ++i) events_.replay.gaps.push_back(gap);
  }

  struct Piece {
    double at = 0;
    int64_t tokens = 0;
  };

  Events& events_;
  const size_t index_;
  const double start_;
  const bool long_prompt_;
  Piece first_piece_;  // its gaps are added at the end, which has the first token's time
  int64_t seen_ = 0;
  double last_ = 0;
};

}  // namespace

std::vector<TimedRow> timed_rows(const Step& step) {
  std::vector<TimedRow> rows;
  for (const StepRow& row : step.rows) {
    rows.push_back({.tokens = row.end - row.begin,
                    .cached = row.begin,
                    .decode = std::ssize(rows) < step.decodes});
  }
  return rows;
}

EngineReplay replay_on_engine(Engine& engine, const TraceSource& source, int64_t long_tokens) {
  Events events;
  const RequestStats before = engine.stats();
  const auto begin = std::chrono::steady_clock::now();
  const double start = steady_seconds();
  const auto vocabulary = static_cast<int32_t>(engine.model_config().V);
  const auto wait = [&] {
    std::unique_lock lock(events.mutex);
    events.ended.wait(lock, [&] { return events.open == 0; });
  };
  TraceRequest request;
  try {
    while (source(request)) {
      std::this_thread::sleep_until(begin +
                                    std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                        std::chrono::duration<double>(request.arrival)));
      size_t index = 0;
      {
        const std::lock_guard lock(events.mutex);
        index = events.replay.requests.size();
        events.replay.requests.push_back({.input = request.input, .arrival = request.arrival});
        ++events.open;
      }
      AnswerRequest answer{.prompt = prompt_ids(request, vocabulary),
                           .max_tokens = request.output,
                           .ignore_eos = true,
                           .list_tokens = true,
                           .salt = request.blocks.empty() ? std::to_string(index + 1) : ""};
      try {
        engine.submit(std::move(answer),
                      std::make_shared<Sink>(events, index, start, request.input >= long_tokens));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInvalidArgument) throw;
        const std::lock_guard lock(events.mutex);
        events.replay.requests[index].refused = true;
        --events.open;
      }
    }
  } catch (...) {
    engine.requests().cancel_all();
    wait();
    throw;
  }
  wait();
  if (events.error) throw Error(*events.error);
  const RequestStats after = engine.stats();
  EngineReplay made{.replay = std::move(events.replay),
                    .scheduler = engine.limits(),
                    .approximate = std::move(events.approximate)};
  // GPUs that sample have two steps under way (CudaStepQueue).
  if (engine.config().device.cuda && !engine.config().sp) made.depth = 2;
  made.replay.steps = after.steps - before.steps;
  made.replay.busy = after.step_seconds - before.step_seconds;
  made.replay.prompt_tokens = after.prompt_tokens - before.prompt_tokens;
  if (made.depth > 1) return made;
  made.between =
      (after.host_seconds - before.host_seconds + after.sample_seconds - before.sample_seconds) /
      static_cast<double>(std::max<int64_t>(made.replay.steps, 1));
  return made;
}

}  // namespace braid
