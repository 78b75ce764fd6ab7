#include "braid/engine/trace/trace_summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace braid {
namespace {

// Over requests with prompt lengths that `takes` accepts.
template <class Takes>
TraceTimes times_of(const TraceReplay& replay, const Takes& takes) {
  TraceTimes times;
  std::vector<double> first, whole, prefill, decode;
  for (const ReplayedRequest& r : replay.requests) {
    if (r.refused || !takes(r.input)) continue;
    first.push_back(r.first - r.arrival);
    whole.push_back(r.last - r.arrival);
    prefill.push_back(static_cast<double>(r.input) / first.back());
    if (r.last > r.first) {
      decode.push_back(static_cast<double>(r.output - 1) / (r.last - r.first));
    }
  }
  times.requests = std::ssize(first);
  times.first = spread_of(std::move(first));
  times.whole = spread_of(std::move(whole));
  times.prefill_rate = spread_of(std::move(prefill)).mean;
  times.decode_rate = spread_of(std::move(decode)).mean;
  return times;
}

Spread gaps_of(const TraceReplay& replay, bool brief, bool long_ones) {
  std::vector<double> gaps;
  for (const TokenGap& gap : replay.gaps) {
    if (gap.long_prompt ? long_ones : brief) gaps.push_back(gap.seconds);
  }
  return spread_of(std::move(gaps));
}

bool is_kept(const ReplayedRequest& r, const TraceLimits& limits) {
  if (r.refused) return false;
  const double gap = r.output > 1 ? (r.last - r.first) / static_cast<double>(r.output - 1) : 0;
  return (limits.first == 0 || r.first - r.arrival <= limits.first) &&
         (limits.gap == 0 || gap <= limits.gap);
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  const auto at = [&](double share) {
    const auto i = static_cast<ptrdiff_t>(std::ceil(share * n)) - 1;
    std::nth_element(values.begin(), values.begin() + i, values.end());
    return values[static_cast<size_t>(i)];
  };
  return {mean, at(0.5), at(0.99)};
}

TraceSummary summarize(const TraceReplay& replay, const ReplayConfig& config,
                       const TraceLimits& limits) {
  TraceSummary s;
  const int64_t from = config.long_tokens;
  s.all = times_of(replay, [](int64_t) { return true; });
  s.brief = times_of(replay, [&](int64_t tokens) { return tokens < from; });
  s.long_ones = times_of(replay, [&](int64_t tokens) { return tokens >= from; });
  s.all.gap = gaps_of(replay, true, true);
  s.brief.gap = gaps_of(replay, true, false);
  s.long_ones.gap = gaps_of(replay, false, true);
  int64_t kept = 0, input = 0, output = 0, cached = 0;
  for (const ReplayedRequest& r : replay.requests) {
    s.refused += r.refused ? 1 : 0;
    kept += is_kept(r, limits) ? 1 : 0;
    if (r.refused) continue;
    input += r.input;
    output += r.output;
    cached += r.cached;
  }
  if (replay.seconds > 0) {
    s.prefill_rate = static_cast<double>(replay.prompt_tokens) / replay.seconds;
    s.decode_rate = static_cast<double>(output) / replay.seconds;
    s.kept_rate = static_cast<double>(kept) / replay.seconds;
    s.busy = replay.busy / replay.seconds / config.sets;
  }
  if (!replay.requests.empty()) {
    s.kept = static_cast<double>(kept) / static_cast<double>(replay.requests.size());
  }
  if (input > 0) s.cached = static_cast<double>(cached) / static_cast<double>(input);
  return s;
}

}  // namespace braid
