#include "braid/engine/requests/request_loop.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <variant>

#include "braid/base/clock.h"
#include "braid/base/math.h"
#include "braid/engine/requests/answer_sampler.h"
#include "braid/engine/requests/answer_writer.h"
#include "braid/engine/requests/bounded_queue.h"

namespace braid {
namespace {

constexpr size_t kOutputs = 4096;  // tokens whose text is still to be made
constexpr std::chrono::milliseconds kIdleTurn{200};

struct Active {
  Active(RequestId request_id, AnswerRequest r, const Tokenizer& tokenizer,
         std::span<const int32_t> ends, DType kv_dtype, std::shared_ptr<AnswerSink> sink)
      : id(request_id),
        request(std::move(r)),
        writer(request, tokenizer, std::move(sink)),
        sampler(request, ends, kv_dtype) {}

  const RequestId id;
  const AnswerRequest request;
  AnswerWriter writer;
  // The loop's thread.
  AnswerSampler sampler;
  AnswerEnd facts;                   // as far as they are known
  std::vector<SampledToken> prompt;  // log-probabilities
};

struct PromptOutput {};
using OutputOf = std::variant<PromptOutput, SampledToken, AnswerEnd>;

struct Output {
  std::shared_ptr<Active> active;
  OutputOf what;
  AnswerEnd facts;
};

}  // namespace

struct RequestLoop::Impl {
  Impl(Runner& r, const Tokenizer& t, int64_t v, DType kv, const SchedulerConfig& c)
      : runner(r),
        tokenizer(t),
        vocabulary(v),
        kv_dtype(kv),
        config(c),
        scheduler(c),
        batch(c.page_size) {
    for (int32_t id = 0; id < tokenizer.vocab_size() && id < vocabulary; ++id) {
      if (tokenizer.is_end_of_generation(id)) ends.push_back(id);
    }
    published.last_turn = steady_seconds();
    writer_thread = std::thread([this] { write(); });
    loop_thread = std::thread([this] { loop(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    loop_thread.join();
    outputs.close();
    writer_thread.join();
  }

  // The loop's thread.
  void loop();
  bool take_inbox();
  void start(std::shared_ptr<Active> active);
  void end(RequestId id, AnswerReason reason, std::optional<Error> error = {});
  void turn();
  void compute(const Step& step);
  void score_prompt(Active& active, const StepRow& row, const TensorView& logits, int64_t first);
  void after_token(std::shared_ptr<Active> active, const SampledToken& token);
  void publish();
  void put(Output output) { outputs.push(std::move(output)); }
  // The writer's thread.
  void write();

  Runner& runner;
  const Tokenizer& tokenizer;
  const int64_t vocabulary;
  const DType kv_dtype;
  const SchedulerConfig config;
  std::vector<int32_t> ends;  // end-of-generation ids

  // The loop's thread alone.
  Scheduler scheduler;
  Batch batch;
  StepCostFit fit;
  std::map<RequestId, std::shared_ptr<Active>> active;
  RequestStats stats;

  BoundedQueue<Output> outputs{kOutputs};

  mutable std::mutex mutex;
  std::condition_variable wake, idle;
  std::vector<std::shared_ptr<Active>> inbox;
  std::vector<RequestId> cancels;
  RequestId last_id = 0;
  int64_t open = 0;  // requests whose on_end has not been called
  bool stopping = false;
  bool draining = false;
  RequestStats published;

  std::thread loop_thread, writer_thread;
};

void RequestLoop::Impl::loop() {
  try {
    while (take_inbox()) turn();
    while (!active.empty()) end(active.begin()->first, AnswerReason::abort);
  } catch (const std::exception& error) {
    // A rank failed or a step ran past its deadline: the runner is of no more use.
    const Error aborted(ErrorCode::kAborted, error.what());
    stats.error = error.what();
    publish();
    take_inbox();
    while (!active.empty()) end(active.begin()->first, AnswerReason::error, aborted);
  }
}

// False once the loop is to end. Waits while there is nothing to do.
bool RequestLoop::Impl::take_inbox() {
  std::vector<std::shared_ptr<Active>> fresh;
  std::vector<RequestId> gone;
  {
    std::unique_lock lock(mutex);
    const auto due = [&] { return stopping || !inbox.empty() || !cancels.empty(); };
    if (active.empty() && published.error.empty()) {
      while (!wake.wait_for(lock, kIdleTurn, due)) published.last_turn = steady_seconds();
    }
    fresh.swap(inbox);
    gone.swap(cancels);
    if (stopping && fresh.empty() && gone.empty()) return false;
  }
  for (auto& request : fresh) start(std::move(request));
  for (const RequestId id : gone) end(id, AnswerReason::abort);
  gone.clear();
  for (const auto& [id, request] : active) {
    if (request->writer.closed()) gone.push_back(id);
  }
  for (const RequestId id : gone) end(id, AnswerReason::abort);
  const std::lock_guard lock(mutex);
  return !stopping;
}

void RequestLoop::Impl::start(std::shared_ptr<Active> request) {
  const RequestId id = request->id;
  const AnswerRequest& r = request->request;
  active.emplace(id, request);
  try {
    scheduler.submit({.id = id,
                      .ids = r.prompt,
                      .max_tokens = r.max_tokens > 0 ? r.max_tokens : config.max_context,
                      .key = r.key,
                      .salt = r.salt,
                      .score_prompt = r.scores_prompt(),
                      .arrival = request->facts.times.arrival});
  } catch (const Error& error) {
    end(id, AnswerReason::error, error);
  }
}

void RequestLoop::Impl::end(RequestId id, AnswerReason reason, std::optional<Error> error) {
  const auto it = active.find(id);
  if (it == active.end()) return;
  const std::shared_ptr<Active> request = it->second;
  if (scheduler.contains(id)) {
    request->facts.preemptions = scheduler.preemptions(id);
    scheduler.end(id);
  }
  active.erase(it);
  publish();  // before the sink hears of it: whoever then asks sees its pages free
  request->facts.reason = reason;
  request->facts.error = std::move(error);
  put({request, request->facts, {}});
}

void RequestLoop::Impl::turn() {
  const double begin = steady_seconds();
  const Step step = scheduler.next(begin);
  for (const RequestId id : step.expired) {
    end(id, AnswerReason::error,
        Error(ErrorCode::kDeadline,
              fmt::format("the request waited for {} s, which is the queue's time limit",
                          config.queue_timeout_s)));
  }
  if (!step.empty()) {
    compute(step);
  } else if (!active.empty()) {
    BRAID_CHECK(
        std::ranges::all_of(active, [](const auto& a) { return a.second->writer.closed(); }),
        "requests wait and no step computes any");
  }
  publish();
}

void RequestLoop::Impl::compute(const Step& step) {
  const double begin = steady_seconds();
  batch.clear();
  for (const StepRow& row : step.rows) {
    const Sequence& sequence = scheduler.sequence(row.id);
    Active& request = *active.at(row.id);
    if (request.facts.times.begin == 0) {
      request.facts.times.begin = begin;
      request.facts.cached_tokens = scheduler.cached_tokens(row.id);
    }
    batch.add(
        std::span(sequence.ids)
            .subspan(static_cast<size_t>(row.begin), static_cast<size_t>(row.end - row.begin)),
        row.begin, scheduler.pages_of(row.id), row.scored);
  }
  const double stepping = steady_seconds();
  try {
    runner.step(batch);
  } catch (const std::exception& error) {
    if (!runner.usable()) throw;
    // Its strategy was refused: the requests that it was for end, and the others go on.
    for (const StepRow& row : step.rows) {
      end(row.id, AnswerReason::error, Error(ErrorCode::kAborted, error.what()));
    }
    return;
  }
  const double stepped = steady_seconds();
  fit.add(step.tokens, step.attended, 1e3 * (stepped - stepping));
  scheduler.set_cost(fit.cost());

  const TensorView logits = batch.extents().row > 0 ? runner.logits() : TensorView{};
  std::vector<std::pair<RequestId, SampledToken>> sampled;
  std::vector<int32_t> ids;
  int64_t next = 0;  // row of the logits
  for (const StepRow& row : step.rows) {
    Active& request = *active.at(row.id);
    if (request.request.scores_prompt() && request.facts.times.first_token == 0) {
      score_prompt(request, row, logits, next);
    }
    next += row.scored;
    if (!row.sample) continue;
    const std::span last(logits.row_as<float>(next - 1), static_cast<size_t>(logits.cols()));
    sampled.emplace_back(row.id, request.sampler.sample(last, scheduler.sequence(row.id).ids));
    ids.push_back(sampled.back().second.id);
  }
  const double sampled_at = steady_seconds();
  scheduler.step_done(step, ids);
  for (const auto& [id, token] : sampled) {
    if (token.error) {
      end(id, AnswerReason::error, token.error);
    } else {
      after_token(active.at(id), token);
    }
  }
  ++stats.steps;
  stats.step_tokens = step.tokens;
  stats.answer_tokens += std::ssize(ids);
  stats.prompt_tokens += step.tokens - std::ssize(ids);
  stats.step_seconds += stepped - stepping;
  stats.sample_seconds += sampled_at - stepped;
  stats.host_seconds += (stepping - begin) + (steady_seconds() - sampled_at);
}

void RequestLoop::Impl::score_prompt(Active& request, const StepRow& row, const TensorView& logits,
                                     int64_t first) {
  const std::vector<int32_t>& prompt = request.request.prompt;
  if (row.begin == 0) request.prompt.clear();  // it was preempted, and begins again
  if (request.request.on_logit_rows) {
    request.request.on_logit_rows(row.end - row.scored, first, row.scored);
  }
  for (int64_t i = 0; i < row.scored; ++i) {
    const int64_t next = row.end - row.scored + i + 1;
    const std::span<const float> values(logits.row_as<float>(first + i),
                                        static_cast<size_t>(logits.cols()));
    if (request.request.on_logits) request.request.on_logits(next - 1, values);
    if (next >= std::ssize(prompt) || request.request.prompt_logprobs < 0) continue;
    request.prompt.push_back(log_probability(values, prompt[static_cast<size_t>(next)],
                                             request.request.prompt_logprobs));
  }
}

void RequestLoop::Impl::after_token(std::shared_ptr<Active> request, const SampledToken& token) {
  const AnswerRequest& r = request->request;
  AnswerEnd& facts = request->facts;
  const double time = steady_seconds();
  if (facts.times.first_token == 0) {
    facts.times.first_token = time;
    if (r.prompt_logprobs >= 0) put({request, PromptOutput{}, {}});
  }
  facts.times.last_token = time;
  ++facts.answer_tokens;
  const bool known = token.id < tokenizer.vocab_size();
  const bool end_id = std::ranges::find(r.stop_ids, token.id) != r.stop_ids.end();
  if (end_id || (!r.ignore_eos && known && tokenizer.is_end_of_generation(token.id))) {
    if (end_id) facts.stop_id = token.id;
    return end(request->id, AnswerReason::stop);
  }
  put({request, token, facts});
  const Sequence& sequence = scheduler.sequence(request->id);
  if (std::ssize(sequence.ids) - std::ssize(r.prompt) >= sequence.max_tokens) {
    end(request->id, AnswerReason::length);
  }
}

void RequestLoop::Impl::publish() {
  stats.last_turn = steady_seconds();
  stats.scheduler = scheduler.counts();
  stats.oldest_wait = scheduler.oldest_wait(steady_seconds());
  stats.cost = fit.cost();
  const std::lock_guard lock(mutex);
  published = stats;
}

void RequestLoop::Impl::write() {
  while (std::optional<Output> output = outputs.pop()) {
    Active& request = *output->active;
    if (std::holds_alternative<PromptOutput>(output->what)) {
      request.writer.prompt(request.prompt);
    } else if (const auto* token = std::get_if<SampledToken>(&output->what)) {
      request.writer.token(*token, std::move(output->facts));
    } else {
      request.writer.end(std::get<AnswerEnd>(std::move(output->what)));
      {
        const std::lock_guard lock(mutex);
        --open;
      }
      idle.notify_all();
    }
    wake.notify_one();
  }
}

RequestLoop::RequestLoop(Runner& runner, const Tokenizer& tokenizer, int64_t vocabulary,
                         DType kv_dtype, const SchedulerConfig& config)
    : impl_(std::make_unique<Impl>(runner, tokenizer, vocabulary, kv_dtype, config)) {}

RequestLoop::~RequestLoop() = default;

RequestId RequestLoop::submit(AnswerRequest request, std::shared_ptr<AnswerSink> sink) {
  check(request, impl_->config, impl_->vocabulary);
  std::unique_lock lock(impl_->mutex);
  const RequestStats& stats = impl_->published;
  if (!stats.error.empty()) fail(ErrorCode::kAborted, "the engine has ended: {}", stats.error);
  if (impl_->draining || impl_->stopping) {
    fail(ErrorCode::kAborted, "the engine takes no new requests: it is ending");
  }
  const auto waiting = stats.scheduler.waiting + std::ssize(impl_->inbox);
  if (waiting >= impl_->config.max_waiting) {
    fail(ErrorCode::kResource, "{} requests wait already, the queue holds {}", waiting,
         impl_->config.max_waiting);
  }
  const RequestId id = ++impl_->last_id;
  const auto active = std::make_shared<Active>(id, std::move(request), impl_->tokenizer,
                                               impl_->ends, impl_->kv_dtype, std::move(sink));
  active->facts.times.arrival = steady_seconds();
  active->facts.prompt_tokens = std::ssize(active->request.prompt);
  impl_->inbox.push_back(active);
  ++impl_->open;
  lock.unlock();
  impl_->wake.notify_one();
  return id;
}

void RequestLoop::cancel(RequestId id) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancels.push_back(id);
  }
  impl_->wake.notify_one();
}

bool RequestLoop::drain(double seconds) {
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  return impl_->idle.wait_for(lock, std::chrono::duration<double>(seconds),
                              [&] { return impl_->open == 0; });
}

RequestStats RequestLoop::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->published;
}

}  // namespace braid
