#include "braid/engine/requests/request_loop.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "braid/base/clock.h"
#include "braid/base/math.h"
#include "braid/engine/requests/answer_outputs.h"
#include "braid/engine/requests/request_steps.h"

namespace braid {
namespace {

constexpr std::chrono::milliseconds kIdleTurn{200};

// Bounds a step's rows of logits if steps are planned before requests come: a row for each running
// sequence, and the rows of a scored prompt.
SchedulerConfig with_rows(SchedulerConfig config, bool planned) {
  if (planned) config.max_rows = config.max_running + config.max_scored;
  return config;
}

StepQueueOptions complete(StepQueueOptions options, const SchedulerConfig& config,
                          int64_t vocabulary) {
  options.sequences = config.max_running;
  options.step_tokens = config.most_shared();
  options.rows = config.max_rows;
  options.context = config.room();
  options.vocabulary = vocabulary;
  return options;
}

}  // namespace

struct RequestLoop::Impl {
  Impl(Runner& runner, const Tokenizer& t, int64_t v, DType kv, const SchedulerConfig& c,
       const StepQueueOptions& options)
      : tokenizer(t),
        vocabulary(v),
        kv_dtype(kv),
        config(with_rows(c, runner.samples_on_device() && !options.on_host)),
        on_step(options.on_step),
        scheduler(config),
        steps(runner.step_queue(complete(options, config, v)), scheduler, c.page_size, ends,
              [this] { tell([this] { ++masks_made; }); }),
        outputs([this](const ActiveRequest& request, bool end) { written(request, end); }) {
    for (int32_t id = 0; id < tokenizer.vocab_size() && id < vocabulary; ++id) {
      if (tokenizer.is_end_of_generation(id)) ends.push_back(id);
    }
    published.last_turn = steady_seconds();
    loop_thread = std::thread([this] { loop(); });
  }

  ~Impl() {
    tell([this] { stopping = true; });
    loop_thread.join();
    outputs.finish();
  }

  // Any thread: changes guarded state, and wakes the loop.
  void tell(const std::function<void()>& change) {
    {
      const std::lock_guard lock(mutex);
      change();
    }
    wake.notify_one();
  }

  // The loop's thread.
  void loop();
  bool take_inbox();
  bool due() const;
  void start(std::shared_ptr<ActiveRequest> active);
  void end(RequestId id, AnswerReason reason, std::optional<Error> error = {});
  void turn();
  void put(const Step& step);
  void take();
  void take_late();
  void wait_for_mask();
  bool ends_with(const AnswerRequest& request, int32_t id) const;
  void hand_out(const std::shared_ptr<ActiveRequest>& active, const SampledToken& token);
  void after_token(RequestId id, const SampledToken& token);
  void publish();
  // The writer's thread.
  void written(const ActiveRequest& request, bool end);

  const Tokenizer& tokenizer;
  const int64_t vocabulary;
  const DType kv_dtype;
  const SchedulerConfig config;
  const std::function<void(const Step&, double)> on_step;
  std::vector<int32_t> ends;  // end-of-generation ids

  mutable std::mutex mutex;
  std::condition_variable wake, idle;
  int64_t masks_made = 0;  // so far

  // The loop's thread alone.
  Scheduler scheduler;
  RequestSteps steps;
  double waited = 0;  // for steps, in this turn
  StepCostFit fit;
  ActiveRequests active;
  int64_t masks_seen = 0;  // of masks_made
  RequestStats stats;

  std::vector<std::shared_ptr<ActiveRequest>> inbox;
  std::vector<RequestId> cancels;
  bool cancels_all = false;
  RequestId last_id = 0;
  int64_t open = 0;  // requests whose on_end has not been called
  bool stopping = false;
  bool draining = false;
  RequestStats published;

  AnswerOutputs outputs;
  std::thread loop_thread;
};

void RequestLoop::Impl::loop() {
  try {
    while (take_inbox()) turn();
    while (!active.empty()) end(active.begin()->first, AnswerReason::abort);
    while (!steps.empty()) take();
  } catch (const std::exception& error) {
    // A rank failed or a step ran past its deadline: the runner is no longer usable.
    const Error aborted(ErrorCode::kAborted, error.what());
    stats.error = error.what();
    steps.clear();
    publish();
    take_inbox();
    while (!active.empty()) end(active.begin()->first, AnswerReason::error, aborted);
  }
  outputs.settle();
}

// Whether there is news. Under the mutex.
bool RequestLoop::Impl::due() const {
  return stopping || cancels_all || !inbox.empty() || !cancels.empty() || masks_made != masks_seen;
}

// False once the loop is to end. Waits while there is nothing to do.
bool RequestLoop::Impl::take_inbox() {
  while (active.empty() && !steps.empty()) take();
  std::vector<std::shared_ptr<ActiveRequest>> fresh;
  std::vector<RequestId> gone;
  bool all_go = false;
  {
    std::unique_lock lock(mutex);
    if (active.empty() && published.error.empty()) {
      BRAID_CHECK(stats.scheduler.pages.held == 0, "{} pages are held and no request is there",
                  stats.scheduler.pages.held);
      while (!wake.wait_for(lock, kIdleTurn, [&] { return due(); }))
        published.last_turn = steady_seconds();
    }
    masks_seen = masks_made;
    fresh.swap(inbox);
    gone.swap(cancels);
    all_go = std::exchange(cancels_all, false);
    if (stopping && fresh.empty() && gone.empty()) return false;
  }
  for (auto& request : fresh) start(std::move(request));
  for (const RequestId id : gone) end(id, AnswerReason::abort);
  while (all_go && !active.empty()) end(active.begin()->first, AnswerReason::abort);
  outputs.look();
  const std::lock_guard lock(mutex);
  return !stopping || !inbox.empty();  // requests that came meanwhile must hear of the end
}

void RequestLoop::Impl::start(std::shared_ptr<ActiveRequest> request) {
  const RequestId id = request->id;
  const AnswerRequest& r = request->request;
  active.add(id, request);
  try {
    scheduler.submit({.id = id,
                      .ids = r.prompt,
                      .max_tokens = r.max_tokens > 0 ? r.max_tokens : config.max_context,
                      .key = r.key,
                      .salt = r.salt,
                      .exact = r.exact,
                      .score_prompt = r.scores_prompt(),
                      .arrival = request->facts.times.arrival});
    steps.prepare(request);
  } catch (const Error& error) {
    end(id, AnswerReason::error, error);
  }
}

void RequestLoop::Impl::end(RequestId id, AnswerReason reason, std::optional<Error> error) {
  const auto it = active.find(id);
  if (it == active.end()) return;
  const std::shared_ptr<ActiveRequest> request = it->second;
  if (scheduler.contains(id)) request->facts.preemptions = scheduler.preemptions(id);
  scheduler.end(id);
  steps.leave(*request);
  active.erase(it);
  publish();  // before the sink hears of the end: then its pages count as free
  request->facts.reason = reason;
  request->facts.error = std::move(error);
  outputs.end(request);
}

// For an idle turn at most, since nothing else can be done.
void RequestLoop::Impl::wait_for_mask() {
  const double begin = steady_seconds();
  std::unique_lock lock(mutex);
  wake.wait_for(lock, kIdleTurn, [&] { return due(); });
  waited += steady_seconds() - begin;
}

void RequestLoop::Impl::take_late() {
  const auto tokens =
      steps.look(active, [&](const auto& request, const auto& token) { hand_out(request, token); });
  if (!tokens.empty()) outputs.wake();
  for (const auto& [id, token] : tokens) after_token(id, token);
  stats.answer_tokens += std::ssize(tokens);
}

void RequestLoop::Impl::turn() {
  const double begin = steady_seconds();
  waited = 0;
  const double sampled = stats.sample_seconds;
  while (!steps.empty() && steps.one_by_one()) take();
  take_late();
  const Step step = scheduler.next(begin);
  for (const RequestId id : step.expired) {
    end(id, AnswerReason::error,
        Error(ErrorCode::kDeadline,
              fmt::format("the request waited for {} s, which is the queue's time limit",
                          config.queue_timeout_s)));
  }
  for (const RequestId id : step.preempted) steps.leave(*active.at(id));
  if (!step.empty()) {
    put(step);
  } else if (!active.empty() && steps.empty()) {
    const auto closed = [](const auto& a) { return a.second->writer.closed(); };
    BRAID_CHECK(steps.waits() || std::ranges::all_of(active, closed),
                "requests wait and no step computes any");
    if (steps.waits()) wait_for_mask();
  }
  // The next step is planned once all but the newest of the steps under way have ended.
  while (steps.full() || (step.empty() && !steps.empty())) take();
  stats.host_seconds += steady_seconds() - begin - waited - (stats.sample_seconds - sampled);
  publish();
}

void RequestLoop::Impl::put(const Step& step) {
  const PutStep result = steps.put(step, active);
  waited += result.waited;
  if (result.refused) {  // the requests that the step was for end, and the others go on
    for (const StepRow& row : step.rows) end(row.id, AnswerReason::error, result.refused);
    return;
  }
  stats.add_step(step.tokens);
}

void RequestLoop::Impl::take() {
  const EndedRequests ended =
      steps.take(active, [&](const auto& request, const auto& token) { hand_out(request, token); });
  outputs.wake();
  const Step& step = ended.step;
  waited += ended.waited;
  fit.add(step.tokens, step.attended, 1e3 * ended.seconds);
  scheduler.set_cost(fit.cost());
  if (on_step) on_step(step, ended.seconds);
  stats.step_seconds += ended.seconds;
  stats.sample_seconds += ended.sample_seconds;
  size_t next = 0;
  int64_t late = 0;
  for (const StepRow& row : step.rows) {
    if (!row.sample) continue;
    const SampledToken& token = ended.tokens[next++];
    if (token.id == kPendingToken) {
      ++late;
    } else if (!active.contains(row.id)) {  // it ended while the step was under way
      ++stats.dropped_tokens;
    } else {
      after_token(row.id, token);
    }
  }
  stats.answer_tokens += std::ssize(ended.tokens) - late;
  stats.prompt_tokens += step.tokens - std::ssize(ended.tokens);
}

// Whether the token ends an answer. The answer does not contain such a token.
bool RequestLoop::Impl::ends_with(const AnswerRequest& r, int32_t id) const {
  return std::ranges::find(r.stop_ids, id) != r.stop_ids.end() ||
         (!r.ignore_eos && id < tokenizer.vocab_size() && tokenizer.is_end_of_generation(id));
}

// Before the scheduler knows the token.
void RequestLoop::Impl::hand_out(const std::shared_ptr<ActiveRequest>& request,
                                 const SampledToken& token) {
  AnswerEnd& facts = request->facts;
  const double time = steady_seconds();
  if (facts.times.first_token == 0) {
    facts.times.first_token = time;
    if (request->request.prompt_logprobs >= 0) outputs.prompt(*request);
  }
  facts.times.last_token = time;
  ++facts.answer_tokens;
  const bool soon = request->slot < 0 && takes_long(request->request);  // the next takes a while
  if (!ends_with(request->request, token.id)) outputs.token(*request, token, soon);
}

void RequestLoop::Impl::after_token(RequestId id, const SampledToken& token) {
  if (token.error) return end(id, AnswerReason::error, token.error);
  const std::shared_ptr<ActiveRequest>& request = active.at(id);  // until end()
  const AnswerRequest& r = request->request;
  if (ends_with(r, token.id)) {
    if (std::ranges::find(r.stop_ids, token.id) != r.stop_ids.end()) {
      request->facts.stop_id = token.id;
    }
    end(id, AnswerReason::stop);
  } else if (request->facts.answer_tokens >= scheduler.sequence(id).max_tokens) {
    end(id, AnswerReason::length);
  } else {
    steps.prepare(request);
  }
}

void RequestLoop::Impl::publish() {
  stats.last_turn = steady_seconds();
  stats.scheduler = scheduler.counts();
  stats.oldest_wait = scheduler.oldest_wait(steady_seconds());
  stats.late_masks = steps.late_masks();
  stats.late_preparations = steps.late_preparations();
  const std::lock_guard lock(mutex);
  published = stats;
}

void RequestLoop::Impl::written(const ActiveRequest& request, bool end) {
  const bool closed = !end && request.writer.closed();  // by a stop text or by the sink
  if (end || closed) {
    const std::lock_guard lock(mutex);
    if (end) --open;
    if (closed) cancels.push_back(request.id);
  }
  if (end) idle.notify_all();
  wake.notify_one();
}

RequestLoop::RequestLoop(Runner& runner, const Tokenizer& tokenizer, int64_t vocabulary,
                         DType kv_dtype, const SchedulerConfig& config,
                         const StepQueueOptions& options)
    : impl_(std::make_unique<Impl>(runner, tokenizer, vocabulary, kv_dtype, config, options)) {}

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
  const auto active = std::make_shared<ActiveRequest>(
      id, std::move(request), impl_->tokenizer, impl_->ends, impl_->kv_dtype, std::move(sink));
  active->facts.times.arrival = steady_seconds();
  active->facts.prompt_tokens = std::ssize(active->request.prompt);
  impl_->inbox.push_back(active);
  ++impl_->open;
  lock.unlock();
  impl_->wake.notify_one();
  return id;
}

void RequestLoop::cancel(RequestId id) {
  impl_->tell([&] { impl_->cancels.push_back(id); });
}

void RequestLoop::cancel_all() {
  impl_->tell([&] { impl_->cancels_all = true; });
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
