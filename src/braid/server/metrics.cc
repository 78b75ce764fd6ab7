#include "braid/server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace braid::server {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

const Buckets kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                             1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kToken = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                        .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const Buckets kLatency = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                          30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kTokens = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                         1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
const Buckets kChoices = {1, 2, 5, 10, 20};
const Buckets kStepTokens(kStepTokenBounds.begin(), kStepTokenBounds.end());

}  // namespace

struct Metrics::Impl {
  Impl(const std::string& p, const std::string& m) : prefix(p + ":"), labels{{"model_name", m}} {}

  Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(prefix + name).Help(help).Register(registry).Add(labels);
  }
  Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(prefix + name).Help(help).Register(registry).Add(labels);
  }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram()
        .Name(prefix + name)
        .Help(help)
        .Register(registry)
        .Add(labels, buckets);
  }

  const std::string prefix;
  const prometheus::Labels labels;
  prometheus::Registry registry;
  std::mutex mutex;  // for text(): counters of the loop are brought up to date

  Gauge& running = gauge("num_requests_running", "Requests that have pages of the KV cache");
  Gauge& waiting = gauge("num_requests_waiting", "Requests that wait for their first step");
  Gauge& usage = gauge("kv_cache_usage_perc", "Share of KV pages in the hands of requests, 0 to 1");
  Gauge& cached = gauge("kv_cache_cached_pages", "KV pages that hold a prefix and no request");
  Gauge& oldest = gauge("oldest_wait_seconds", "How long the oldest waiting request has waited");
  Counter& prompt_tokens = counter("prompt_tokens_total", "Tokens of prompts computed");
  Counter& answer_tokens = counter("generation_tokens_total", "Tokens generated");
  Counter& queries = counter("prefix_cache_queries_total", "Tokens looked for in the prefix cache");
  Counter& hits = counter("prefix_cache_hits_total", "Tokens found in the prefix cache");
  Counter& passed = counter("prefix_cache_approximate_passed_total",
                            "Tokens of exact prompts computed, whose cached keys are approximate");
  Counter& approximate =
      counter("approximate_requests_total", "Requests that ended, answered by approximation");
  Counter& preemptions = counter("num_preemptions_total", "Times that a request gave up its pages");
  Counter& evictions = counter("kv_cache_evictions_total", "Cached KV pages given up");
  Counter& rejections =
      counter("admission_rejections_total", "Requests refused: the queue was full");
  Counter& steps = counter("steps_total", "Steps computed");
  Counter& step_seconds = counter("step_seconds_total", "Time of all steps");
  Counter& host_seconds =
      counter("step_host_seconds_total", "Time of the engine's thread beside its steps");
  Counter& dropped = counter("dropped_tokens_total",
                             "Tokens of steps that were under way when their request ended");
  Counter& late_masks =
      counter("late_masks_total", "Masks of tokens that were not there for the next step");
  Counter& late = counter("late_preparations_total",
                          "Plans, graphs and allocations of a GPU after the server was ready");
  prometheus::Family<Counter>& ends = prometheus::BuildCounter()
                                          .Name(prefix + "request_success_total")
                                          .Help("Requests that ended, by reason")
                                          .Register(registry);
  Histogram& ttft =
      histogram("time_to_first_token_seconds", "From arrival to the first token", kFirstToken);
  Histogram& itl =
      histogram("inter_token_latency_seconds", "Between two tokens of an answer", kToken);
  Histogram& tpot = histogram("request_time_per_output_token_seconds",
                              "Mean time of a request's tokens after the first", kToken);
  Histogram& e2e = histogram("e2e_request_latency_seconds", "From arrival to the end", kLatency);
  Histogram& queue =
      histogram("request_queue_time_seconds", "From arrival to the first step", kLatency);
  Histogram& prefill =
      histogram("request_prefill_time_seconds", "From the first step to the first token", kLatency);
  Histogram& decode =
      histogram("request_decode_time_seconds", "From the first token to the last", kLatency);
  Histogram& inference = histogram("request_inference_time_seconds",
                                   "From the first step to the last token", kLatency);
  Histogram& prompt_length = histogram("request_prompt_tokens", "Tokens of a prompt", kTokens);
  Histogram& answer_length = histogram("request_generation_tokens", "Tokens of an answer", kTokens);
  Histogram& choices = histogram("request_params_n", "Choices asked for", kChoices);
  Histogram& limit = histogram("request_params_max_tokens", "Limit of an answer's tokens", kTokens);
  Histogram& preempted = histogram("request_num_preemptions", "Preemptions of a request", kChoices);
  Histogram& step_tokens = histogram("iteration_tokens_total", "Tokens of a step", kStepTokens);
  Gauge* waiting_for_room = nullptr;
  RequestStats told;  // what step_tokens holds
};

Metrics::Metrics(const std::string& prefix, const std::string& model, const SchedulerConfig& limits)
    : impl_(std::make_unique<Impl>(prefix, model)) {
  const auto labelled = [&](const char* name, const char* help, prometheus::Labels labels) {
    labels.insert(impl_->labels.begin(), impl_->labels.end());
    auto& family =
        prometheus::BuildGauge().Name(impl_->prefix + name).Help(help).Register(impl_->registry);
    return &family.Add(labels);
  };
  impl_->waiting_for_room = labelled("num_requests_waiting_by_reason",
                                     "Waiting requests, by reason", {{"reason", "capacity"}});
  labelled("cache_config_info", "The KV cache, as labels",
           {{"block_size", std::to_string(limits.page_size)},
            {"num_gpu_blocks", std::to_string(limits.pages)},
            {"enable_prefix_caching", limits.prefix_cache ? "True" : "False"}})
      ->Set(1);
}

Metrics::~Metrics() = default;

void Metrics::rejected() {
  impl_->rejections.Increment();
}

void Metrics::accepted(int n, int64_t max_tokens) {
  impl_->choices.Observe(n);
  if (max_tokens > 0) impl_->limit.Observe(static_cast<double>(max_tokens));
}

void Metrics::token_gap(double seconds) {
  impl_->itl.Observe(seconds);
}

void Metrics::ended(const AnswerEnd& end) {
  prometheus::Labels labels = impl_->labels;
  labels["finished_reason"] = std::string(to_string(end.reason));
  impl_->ends.Add(labels).Increment();
  if (end.approximate) impl_->approximate.Increment();
  const AnswerTimes& t = end.times;
  impl_->e2e.Observe(t.end - t.arrival);
  impl_->prompt_length.Observe(static_cast<double>(end.prompt_tokens));
  impl_->answer_length.Observe(static_cast<double>(end.answer_tokens));
  impl_->preempted.Observe(static_cast<double>(end.preemptions));
  if (t.begin > 0) impl_->queue.Observe(t.begin - t.arrival);
  if (t.first_token == 0) return;
  impl_->ttft.Observe(t.first_token - t.arrival);
  impl_->prefill.Observe(t.first_token - t.begin);
  impl_->decode.Observe(t.last_token - t.first_token);
  impl_->inference.Observe(t.last_token - t.begin);
  if (end.answer_tokens > 1) {
    impl_->tpot.Observe((t.last_token - t.first_token) /
                        static_cast<double>(end.answer_tokens - 1));
  }
}

std::string Metrics::text(const RequestStats& stats) {
  const std::lock_guard lock(impl_->mutex);
  const Scheduler::Counts& counts = stats.scheduler;
  const auto total =
      static_cast<double>(counts.pages.free + counts.pages.cached + counts.pages.held);
  impl_->running.Set(static_cast<double>(counts.running));
  impl_->waiting.Set(static_cast<double>(counts.waiting));
  impl_->waiting_for_room->Set(static_cast<double>(counts.waiting));
  impl_->usage.Set(total > 0 ? static_cast<double>(counts.pages.held) / total : 0);
  impl_->cached.Set(static_cast<double>(counts.pages.cached));
  impl_->oldest.Set(stats.oldest_wait);
  const auto raise = [](Counter& counter, double value) {
    counter.Increment(std::max(0.0, value - counter.Value()));
  };
  raise(impl_->prompt_tokens, static_cast<double>(stats.prompt_tokens));
  raise(impl_->answer_tokens, static_cast<double>(stats.answer_tokens));
  raise(impl_->queries, static_cast<double>(counts.prefix_queries));
  raise(impl_->hits, static_cast<double>(counts.prefix_hits));
  raise(impl_->passed, static_cast<double>(counts.approximate_passed));
  raise(impl_->preemptions, static_cast<double>(counts.preemptions));
  raise(impl_->evictions, static_cast<double>(counts.evictions));
  raise(impl_->steps, static_cast<double>(stats.steps));
  raise(impl_->step_seconds, stats.step_seconds);
  raise(impl_->dropped, static_cast<double>(stats.dropped_tokens));
  raise(impl_->late_masks, static_cast<double>(stats.late_masks));
  raise(impl_->late, static_cast<double>(stats.late_preparations));
  raise(impl_->host_seconds, stats.host_seconds + stats.sample_seconds);
  if (stats.steps > impl_->told.steps) {  // another scrape may bring later numbers before
    std::vector<double> more;
    for (size_t i = 0; i < stats.steps_by_tokens.size(); ++i)
      more.push_back(
          static_cast<double>(stats.steps_by_tokens[i] - impl_->told.steps_by_tokens[i]));
    impl_->step_tokens.ObserveMultiple(
        more, static_cast<double>(stats.all_step_tokens - impl_->told.all_step_tokens));
    impl_->told = stats;
  }
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace braid::server
