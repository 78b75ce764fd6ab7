#include "braid/server/load/load_run.h"

#include <algorithm>
#include <boost/asio.hpp>
#include <chrono>
#include <exception>

#include "braid/base/clock.h"
#include "braid/base/error.h"

namespace braid::server {
namespace {

namespace asio = boost::asio;

constexpr auto kUse = asio::use_awaitable;

class Run {
 public:
  Run(LoadRun& run, asio::io_context& context)
      : run_(run), context_(context), client_(context.get_executor(), run.config) {}

  asio::awaitable<void> prepare() {
    LoadConfig& config = run_.config;
    if (config.model.empty()) {
      std::string path = config.base + "/models";
      const std::string text = co_await client_.get(std::move(path));
      const Json models = Json::parse(text, nullptr, false);
      const bool listed = models.is_object() && models.contains("data") &&
                          models["data"].is_array() && !models["data"].empty() &&
                          models["data"][0].is_object() && models["data"][0].contains("id") &&
                          models["data"][0]["id"].is_string();
      if (!listed)
        fail(ErrorCode::kNotFound, "{}/models lists no model: name one with --model", config.base);
      config.model = models["data"][0]["id"].get<std::string>();
    }
    if (config.dataset != DatasetKind::jsonl) {
      const int64_t few = co_await tokens_of(16), many = co_await tokens_of(80);
      if (few > 0 && many > few) {
        run_.words.per_word = static_cast<double>(many - few) / 64;
        run_.words.base = static_cast<double>(few) - 16 * run_.words.per_word;
      }
    }
    requests_ = load_requests(config, run_.words);
    times_ = arrival_times(config);
    // Separate prompts: no measured prompt is in a cache.
    std::mt19937_64 random(config.seed + 2);
    for (int64_t i = 0; i < config.warm_up; ++i) {
      const LoadRequest request{random_words(random, run_.words.words(config.input_len)),
                                config.output_len};
      co_await first(request);
    }
  }

  void send_all() {
    const int64_t all = std::ssize(requests_);
    const int64_t limit = run_.config.concurrency;
    run_.results.resize(requests_.size());
    begin_ = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < (limit > 0 ? std::min(limit, all) : all); ++i) {
      asio::co_spawn(context_, worker(), [this](std::exception_ptr error) {
        if (error && !error_) error_ = error;
      });
    }
    context_.restart();
    context_.run();
    if (error_) std::rethrow_exception(error_);
    double first = run_.results[0].begin, last = 0;
    for (const LoadResult& result : run_.results) {
      first = std::min(first, result.begin);
      last = std::max(last, result.end);
    }
    run_.seconds = last - first;
  }

 private:
  // Sends requests in their order, each not before its time.
  asio::awaitable<void> worker() {
    asio::steady_timer timer(context_);
    while (next_ < requests_.size()) {
      const size_t i = next_++;
      timer.expires_at(begin_ + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                    std::chrono::duration<double>(times_[i])));
      co_await timer.async_wait(kUse);
      run_.most_at_once = std::max(run_.most_at_once, ++under_way_);
      std::string body = load_body(run_.config, requests_[i]).dump();
      run_.results[i] = co_await client_.post(std::move(body));
      --under_way_;
    }
  }

  asio::awaitable<LoadResult> first(const LoadRequest& request) {
    std::string body = load_body(run_.config, request).dump();
    LoadResult result = co_await client_.post(std::move(body));
    if (!result.error.empty()) {
      fail(ErrorCode::kAborted, "the first requests fail ({}): {}", result.error, result.detail);
    }
    co_return result;
  }

  // Prompt tokens of `words` words, as the server counts; -1: no count.
  asio::awaitable<int64_t> tokens_of(int64_t words) {
    std::mt19937_64 random(0);
    const LoadRequest request{random_words(random, words), 1};
    const LoadResult result = co_await first(request);
    co_return result.facts.prompt_tokens;
  }

  LoadRun& run_;
  asio::io_context& context_;
  LoadClient client_;
  std::vector<LoadRequest> requests_;
  std::vector<double> times_;
  std::chrono::steady_clock::time_point begin_;
  size_t next_ = 0;
  int64_t under_way_ = 0;
  std::exception_ptr error_;
};

}  // namespace

LoadRun run_load(const LoadConfig& config) {
  LoadRun result{.config = config};
  asio::io_context context(1);
  Run run(result, context);
  std::exception_ptr error;
  asio::co_spawn(context, run.prepare(), [&](std::exception_ptr e) { error = e; });
  context.run();
  if (error) std::rethrow_exception(error);
  run.send_all();
  return result;
}

}  // namespace braid::server
