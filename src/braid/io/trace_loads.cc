#include "braid/io/trace_loads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <random>
#include <span>

#include "braid/base/error.h"

namespace braid {
namespace {

// std's distributions differ between libraries; the engine's numbers do not.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }  // [0, 1)
  double exponential() { return -std::log1p(-uniform()); }                     // of mean 1
  double normal() {
    const double radius = std::sqrt(2 * exponential());
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 random_;
};

struct Quantile {
  double share = 0;
  double tokens = 0;
};

// Lognormal by median and 99th percentile; or by quantiles, log-linear between two.
struct Lengths {
  double median = 0, p99 = 0;
  std::span<const Quantile> quantiles;

  int64_t draw(Draws& draws) const {
    double tokens = 0;
    if (quantiles.empty()) {
      constexpr double kNormalP99 = 2.3263478740408408;
      tokens = median * std::exp(std::log(p99 / median) / kNormalP99 * draws.normal());
    } else {
      const double u = draws.uniform();
      size_t i = 1;
      while (i + 1 < quantiles.size() && u >= quantiles[i].share) ++i;
      const Quantile &a = quantiles[i - 1], &b = quantiles[i];
      tokens = a.tokens * std::pow(b.tokens / a.tokens, (u - a.share) / (b.share - a.share));
    }
    constexpr double kMost = 1e6;
    return std::llround(std::clamp(tokens, 1.0, kMost));
  }
};

// The least length is not published: 8 gives the published mean of 12,035 tokens within 1%.
constexpr std::array<Quantile, 5> kConversation = {
    {{0, 8}, {0.5, 6909}, {0.9, 27367}, {0.99, 85401}, {1, 126195}}};

struct Kind {
  std::string_view name;
  Lengths input, output;
};
const std::array<Kind, 3> kKinds = {{{"needlebench", {113e3, 995e3, {}}, {348, 572, {}}},
                                     {"bookcorpus", {97e3, 406e3, {}}, {375, 631, {}}},
                                     {"conversation", {0, 0, kConversation}, {350, 350, {}}}}};

struct Part {
  const Kind* kind = nullptr;
  double share = 1;
};

std::vector<Part> parse_mix(std::string_view text) {
  std::vector<Part> parts;
  double sum = 0;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    const auto kind = std::ranges::find(kKinds, name, &Kind::name);
    if (kind == kKinds.end()) {
      fail(ErrorCode::kInvalidArgument, "--load names '{}', wanted {}", name,
           fmt::join(load_names(), ", "));
    }
    Part part{.kind = &*kind};
    if (equals < item.size()) {
      const std::string_view share = item.substr(equals + 1);
      const auto [end, error] =
          std::from_chars(share.data(), share.data() + share.size(), part.share);
      if (error != std::errc() || end != share.data() + share.size() ||
          !(part.share > 0 && part.share <= 1e6)) {
        fail(ErrorCode::kInvalidArgument, "--load gives {} the share '{}', wanted above 0", name,
             share);
      }
    }
    sum += part.share;
    parts.push_back(part);
  }
  if (parts.empty()) {
    fail(ErrorCode::kInvalidArgument, "--load is empty, wanted {}", fmt::join(load_names(), ", "));
  }
  for (Part& part : parts) part.share /= sum;
  return parts;
}

}  // namespace

std::vector<std::string> load_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

TraceSource generated_trace(const TraceLoad& load) {
  if (!(load.rate > 0 && std::isfinite(load.rate))) {
    fail(ErrorCode::kInvalidArgument, "--rate is {}, wanted above 0", load.rate);
  }
  struct State {
    Draws draws;
    std::vector<Part> parts;
    int64_t left = 0;
    double now = 0;
    bool begun = false;
  };
  const auto state = std::make_shared<State>(
      State{Draws(load.seed), parse_mix(load.mix), load.requests, 0, false});
  return [state, rate = load.rate](TraceRequest& r) {
    State& s = *state;
    if (s.left-- <= 0) return false;
    if (std::exchange(s.begun, true)) s.now += s.draws.exponential() / rate;
    double at = s.draws.uniform();
    size_t i = 0;
    while (i + 1 < s.parts.size() && at >= s.parts[i].share) at -= s.parts[i++].share;
    const Kind& kind = *s.parts[i].kind;
    r = {.arrival = s.now,
         .input = kind.input.draw(s.draws),
         .output = kind.output.draw(s.draws),
         .blocks = {}};
    return true;
  };
}

}  // namespace braid
