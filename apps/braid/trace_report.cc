#include "braid/trace_report.h"

#include <fmt/format.h>

#include "braid/approximation_report.h"
#include "braid/table.h"

namespace braid::app {
namespace {

void add_times(std::vector<std::vector<std::string>>& rows, const std::string& policy,
               const std::string& prompts, const TraceTimes& t) {
  if (t.requests == 0) return;
  std::vector<std::string> row = {policy, prompts, std::to_string(t.requests)};
  const auto add = [&](const Spread& s, double unit, int digits) {
    for (double x : {s.mean, s.p50, s.p99}) row.push_back(fmt::format("{:.{}f}", x * unit, digits));
  };
  add(t.first, 1, 3);
  add(t.gap, 1e3, 2);
  add(t.whole, 1, 3);
  rows.push_back(std::move(row));
}

std::string name_of(const TraceResult& r) {
  if (!r.approximate) return r.policy;
  return fmt::format("{}, approximate: {:.1f}% of pairs", r.policy,
                     100 * r.approximate->shares.pair_share());
}

double mean_ms(const StepSum& sum) {
  return sum.steps == 0 ? 0 : 1e3 * sum.seconds / static_cast<double>(sum.steps);
}

std::vector<std::string> step_row(const TraceResult& r) {
  std::vector<std::string> row = {name_of(r)};
  for (const StepSum& sum : {r.replay.sums.answers, r.replay.sums.prompts}) {
    row.push_back(std::to_string(sum.steps));
    row.push_back(fmt::format("{:.3f}", mean_ms(sum)));
    row.push_back(std::to_string(sum.tokens));
  }
  row.push_back(fmt::format("{:.3f}", 1e3 * r.between));
  return row;
}

nlohmann::ordered_json to_json(const StepSum& sum) {
  return {{"steps", sum.steps}, {"tokens", sum.tokens}, {"mean_ms", mean_ms(sum)}};
}

nlohmann::ordered_json to_json(const TraceTimes& t) {
  const auto spread = [](const Spread& s) {
    return nlohmann::ordered_json{{"mean", s.mean}, {"p50", s.p50}, {"p99", s.p99}};
  };
  return {{"requests", t.requests},
          {"ttft_s", spread(t.first)},
          {"tbt_s", spread(t.gap)},
          {"e2e_s", spread(t.whole)},
          {"request_prefill_tokens_per_s", t.prefill_rate},
          {"request_decode_tokens_per_s", t.decode_rate}};
}

}  // namespace

std::string trace_tables(const std::vector<TraceResult>& results, int64_t long_tokens) {
  std::vector<std::vector<std::string>> times, rates, steps;
  for (const TraceResult& r : results) {
    const TraceSummary& s = r.summary;
    add_times(times, name_of(r), "all", s.all);
    if (s.brief.requests > 0 && s.long_ones.requests > 0) {
      add_times(times, "", fmt::format("< {}", long_tokens), s.brief);
      add_times(times, "", "long", s.long_ones);
    }
    rates.push_back({name_of(r), fmt::format("{} x {}", r.sets, r.how),
                     fmt::format("{:.2f}", r.rate), fmt::format("{:.0f}", s.prefill_rate),
                     fmt::format("{:.1f}", s.decode_rate),
                     fmt::format("{:.0f}", s.all.prefill_rate),
                     fmt::format("{:.1f}", s.all.decode_rate), fmt::format("{:.0f}%", 100 * s.kept),
                     r.kept_most < 0 ? "-" : fmt::format("{:.2f}", r.kept_most),
                     fmt::format("{:.0f}%", 100 * s.busy), fmt::format("{:.0f}%", 100 * s.cached),
                     std::to_string(s.refused)});
    if (r.between >= 0) steps.push_back(step_row(r));
  }
  return table_text({{"policy"},
                     {"prompts"},
                     {"requests", true},
                     {"TTFT s, mean", true},
                     {"P50", true},
                     {"P99", true},
                     {"TBT ms, mean", true},
                     {"P50", true},
                     {"P99", true},
                     {"E2E s, mean", true},
                     {"P50", true},
                     {"P99", true}},
                    times) +
         "\n" +
         table_text({{"policy"},
                     {"ranks"},
                     {"requests/s", true},
                     {"prefill tokens/s", true},
                     {"decode tokens/s", true},
                     {"of a request: prefill", true},
                     {"decode", true},
                     {"within limits", true},
                     {"most requests/s kept", true},
                     {"busy", true},
                     {"prefix hits", true},
                     {"refused", true}},
                    rates) +
         (steps.empty() ? ""
                        : "\n" + table_text({{"policy"},
                                             {"steps of answers", true},
                                             {"ms", true},
                                             {"tokens", true},
                                             {"with prompts", true},
                                             {"ms", true},
                                             {"tokens", true},
                                             {"ms of the host before each", true}},
                                            steps));
}

nlohmann::ordered_json to_json(const TraceResult& r) {
  const TraceSummary& s = r.summary;
  nlohmann::ordered_json json = {{"policy", r.policy},
                                 {"ranks", r.how},
                                 {"sets", r.sets},
                                 {"requests_per_s", r.rate},
                                 {"all", to_json(s.all)},
                                 {"short", to_json(s.brief)},
                                 {"long", to_json(s.long_ones)},
                                 {"refused", s.refused},
                                 {"seconds", r.replay.seconds},
                                 {"steps", r.replay.steps},
                                 {"steps_of_answers", to_json(r.replay.sums.answers)},
                                 {"steps_with_prompts", to_json(r.replay.sums.prompts)},
                                 {"prefill_tokens_per_s", s.prefill_rate},
                                 {"decode_tokens_per_s", s.decode_rate},
                                 {"within_limits", s.kept},
                                 {"within_limits_per_s", s.kept_rate},
                                 {"busy", s.busy},
                                 {"prefix_hits", s.cached},
                                 {"preemptions", r.replay.preemptions}};
  if (r.kept_most >= 0) json["most_requests_per_s_kept"] = r.kept_most;
  add_approximation(json, r.approximate);
  return json;
}

}  // namespace braid::app
