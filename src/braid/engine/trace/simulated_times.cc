#include "braid/engine/trace/simulated_times.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "braid/schedule/micro_batch.h"

namespace braid {
namespace {

constexpr int64_t kDeep = 65536;  // cached tokens of a probe
constexpr int64_t kShallow = 512;

double pairs_of(double tokens) {
  return tokens * (tokens + 1) / 2;
}

// The value at x, on a straight line between the values at the powers of two around.
template <class T, class At, class Mix>
T between(double x, const At& at, const Mix& mix) {
  const auto low = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max(1.0, x))));
  const double share = x / static_cast<double>(low) - 1;
  return share > 0 ? mix(at(low), at(2 * low), share) : at(low);
}

double line(double a, double b, double share) {
  return a + (b - a) * share;
}

}  // namespace

const SimulatedTimes::Prompt& SimulatedTimes::prompt_at(int64_t tokens) {
  const auto it = prompts_.find(tokens);
  if (it != prompts_.end()) return it->second;
  const auto n = static_cast<double>(tokens);
  const double first = probes_.prompt(tokens, 0);
  Prompt p;
  p.pair = std::max(0.0, probes_.prompt(tokens, kDeep) - first) / (n * kDeep);
  p.products = std::max(0.0, first - p.pair * pairs_of(n));
  const double own = probes_.thinned ? probes_.thinned(tokens) : first;
  p.own = std::max(0.0, own - p.products) / pairs_of(n);
  return prompts_[tokens] = p;
}

const SimulatedTimes::Decode& SimulatedTimes::decode_at(int64_t sequences) {
  const auto it = decodes_.find(sequences);
  if (it != decodes_.end()) return it->second;
  const double near = probes_.decode(sequences, kShallow), far = probes_.decode(sequences, kDeep);
  Decode d;
  d.key = std::max(0.0, far - near) / static_cast<double>(sequences * (kDeep - kShallow));
  d.step = std::max(0.0, near - d.key * static_cast<double>(sequences * kShallow));
  return decodes_[sequences] = d;
}

SimulatedTimes::Prompt SimulatedTimes::prompt_of(double tokens) {
  return between<Prompt>(
      tokens, [&](int64_t n) { return prompt_at(n); },
      [](const Prompt& a, const Prompt& b, double share) {
        return Prompt{line(a.products, b.products, share), line(a.pair, b.pair, share),
                      line(a.own, b.own, share)};
      });
}

SimulatedTimes::Decode SimulatedTimes::decode_of(double sequences) {
  return between<Decode>(
      sequences, [&](int64_t n) { return decode_at(n); },
      [](const Decode& a, const Decode& b, double share) {
        return Decode{line(a.step, b.step, share), line(a.key, b.key, share)};
      });
}

double SimulatedTimes::seconds(std::span<const TimedRow> rows) {
  double tokens = 0, cached_pairs = 0, own_pairs = 0;
  std::vector<double> decodes(static_cast<size_t>(lanes_)), keys(decodes.size());
  for (const TimedRow& row : rows) {
    const auto n = static_cast<double>(row.tokens), before = static_cast<double>(row.cached);
    if (row.decode) {
      const size_t lane = lanes_ > 1 ? static_cast<size_t>(std::max(0, row.group)) : 0;
      decodes[lane] += n;
      keys[lane] += n * (before + 1);
    } else {
      tokens += n;
      cached_pairs += n * before;
      own_pairs += pairs_of(n);
    }
  }
  double slowest = 0;
  for (size_t lane = 0; lane < decodes.size(); ++lane) {
    if (decodes[lane] == 0) continue;
    const Decode d = decode_of(decodes[lane]);
    // Beside a prompt's tokens the decodes' products are a few rows more.
    slowest = std::max(slowest, (tokens > 0 ? 0 : d.step) + d.key * keys[lane]);
  }
  if (tokens == 0) return slowest;
  double all = tokens;
  for (double n : decodes) all += n;
  const Prompt p = prompt_of(all), own = prompt_of(tokens);
  return p.products + own.pair * cached_pairs + own.own * own_pairs + slowest;
}

}  // namespace braid
