#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "braid/server/load/load_run.h"

namespace braid::server {
namespace {

// Of sorted values, between the two nearest, as NumPy's percentile; 0 without values.
double percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const double at = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

void add_times(Json& report, const std::string& name, std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const double count = std::max<double>(1, static_cast<double>(seconds.size()));
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
  double squares = 0;
  for (const double s : seconds) squares += (s - mean) * (s - mean);
  report["mean_" + name + "_ms"] = 1e3 * mean;
  report["median_" + name + "_ms"] = 1e3 * percentile(seconds, 50);
  report["std_" + name + "_ms"] = 1e3 * std::sqrt(squares / count);
  report["p99_" + name + "_ms"] = 1e3 * percentile(seconds, 99);
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  gmtime_r(&now, &tm);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &tm)};
}

// A request with a whole answer.
struct Timed {
  double ttft, tpot, e2el;
  int64_t tokens;

  explicit Timed(const LoadResult& r)
      : ttft((r.facts.times.empty() ? r.end : r.facts.times.front()) - r.begin),
        tpot(0),
        e2el(r.end - r.begin),
        tokens(r.facts.answer_tokens >= 0 ? r.facts.answer_tokens : std::ssize(r.facts.times)) {
    if (tokens > 1 && !r.facts.times.empty()) {
      tpot = (r.facts.times.back() - r.facts.times.front()) / static_cast<double>(tokens - 1);
    }
  }
  bool good(const GoodputLimits& limits) const {
    return ttft <= limits.ttft.value_or(ttft) && tpot <= limits.tpot.value_or(tpot) &&
           e2el <= limits.e2el.value_or(e2el);
  }
};

}  // namespace

Json load_report(const LoadRun& run, bool details) {
  const LoadConfig& config = run.config;
  std::vector<double> ttft, tpot, itl, e2el;
  std::map<std::string, int64_t> kinds;
  int64_t good = 0, input = 0, output = 0, no_usage = 0;
  Json input_lens = Json::array(), output_lens = Json::array(), ttfts = Json::array(),
       itls = Json::array(), texts = Json::array(), errors = Json::array(), starts = Json::array();
  for (const LoadResult& r : run.results) {
    const bool whole = r.error.empty();
    const Timed timed(r);
    if (!whole) ++kinds[r.error];
    Json gaps = Json::array();
    if (whole) {
      input += std::max<int64_t>(0, r.facts.prompt_tokens);
      output += timed.tokens;
      no_usage += r.facts.answer_tokens < 0 ? 1 : 0;
      good += timed.good(config.goodput) ? 1 : 0;
      ttft.push_back(timed.ttft);
      e2el.push_back(timed.e2el);
      if (timed.tokens > 1) tpot.push_back(timed.tpot);
      for (size_t i = 1; i < r.facts.times.size(); ++i) {
        itl.push_back(r.facts.times[i] - r.facts.times[i - 1]);
        gaps.push_back(itl.back());
      }
    }
    if (!details) continue;
    input_lens.push_back(whole ? r.facts.prompt_tokens : 0);
    output_lens.push_back(whole ? timed.tokens : 0);
    ttfts.push_back(whole ? timed.ttft : 0);
    itls.push_back(std::move(gaps));
    texts.push_back(r.facts.text);
    errors.push_back(whole ? "" : r.error + ": " + r.detail);
    starts.push_back(r.begin - run.results[0].begin);
  }
  const double seconds = std::max(run.seconds, 1e-9);
  const auto completed = std::ssize(ttft);
  const auto rate = [&](int64_t count) { return static_cast<double>(count) / seconds; };
  Json report = {{"date", date_text()},
                 {"endpoint_type", config.chat ? "openai-chat" : "openai"},
                 {"model_id", config.model},
                 {"num_prompts", run.results.size()},
                 {"request_rate", config.rate > 0 ? Json(config.rate) : Json("inf")},
                 {"max_concurrency", config.concurrency > 0 ? Json(config.concurrency) : Json()},
                 {"duration", run.seconds},
                 {"completed", completed},
                 {"failed", std::ssize(run.results) - completed},
                 {"total_input_tokens", input},
                 {"total_output_tokens", output},
                 {"request_throughput", rate(completed)},
                 {"request_goodput", config.goodput.any() ? Json(rate(good)) : Json()},
                 {"output_throughput", rate(output)},
                 {"total_token_throughput", rate(input + output)},
                 {"max_concurrent_requests", run.most_at_once},
                 {"errors_by_kind", kinds},
                 {"answers_without_usage", no_usage}};
  add_times(report, "ttft", std::move(ttft));
  add_times(report, "tpot", std::move(tpot));
  add_times(report, "itl", std::move(itl));
  add_times(report, "e2el", std::move(e2el));
  if (details) {
    report["input_lens"] = std::move(input_lens);
    report["output_lens"] = std::move(output_lens);
    report["start_times"] = std::move(starts);
    report["ttfts"] = std::move(ttfts);
    report["itls"] = std::move(itls);
    report["generated_texts"] = std::move(texts);
    report["errors"] = std::move(errors);
  }
  return report;
}

}  // namespace braid::server
