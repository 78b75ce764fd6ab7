#include "braid/engine/prompt_choice.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/strategies/token_sharded.h"

namespace braid {
namespace {

constexpr size_t kLines = 16;  // of explain()
// Halfway between powers of two a candidate is simulated if its linear time is within this ratio of
// the least: kernels bound by memory and then by products bend times by a tenth at most.
constexpr double kNear = 1.25;

int64_t power_below(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
}

int64_t power_above(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

// 0 of 0.
int64_t nearest_power(int64_t n) {
  const int64_t below = power_below(n);
  return 2 * n < 3 * below ? below : 2 * below;
}

double part(int64_t from, int64_t n, int64_t to) {
  return to == from ? 0 : static_cast<double>(n - from) / static_cast<double>(to - from);
}

// Of two lengths' candidates, at `part` of the way from `a` to `b`.
std::vector<PromptCandidate> between(const std::vector<PromptCandidate>& a,
                                     const std::vector<PromptCandidate>& b, double part) {
  std::vector<PromptCandidate> made;
  for (size_t i = 0; i < a.size(); ++i) {
    made.push_back(between(a[i], b[i], part));
    if (!a[i].refused.empty()) made.back().refused = a[i].refused;
  }
  return made;
}

}  // namespace

std::vector<std::shared_ptr<const OpScheduler>> weights_strategies(const OpScheduler& of_tokens) {
  const bool in_order = of_tokens.name() == "sequential";
  return {find_strategy(in_order ? "sequential" : "sequence_parallel"),
          token_sharded_strategy(in_order)};
}

PromptChoice::PromptChoice(const Planners& planners, std::shared_ptr<const OpScheduler> strategy,
                           Profile profile, int64_t most_tokens, bool exact, int64_t step_bytes)
    : planners_(planners),
      strategy_(std::move(strategy)),
      weights_strategies_(weights_strategies(*strategy_)),
      profile_(std::move(profile)),
      most_tokens_(most_tokens),
      exact_(exact),
      step_bytes_(step_bytes) {}

PromptCandidate PromptChoice::simulated(size_t way, int64_t tokens, int64_t cached) const {
  const ForwardPlanner& planner = *planners_[std::min(way, planners_.size() - 1)];
  const CostModel cost(profile_, planner.topology());
  if (way < planners_.size()) {
    return tokens_candidate(planner, *strategy_, tokens, cached, cost, exact_);
  }
  return weights_candidate(planner, weights_strategy(way), tokens, cached, cost, exact_);
}

const std::vector<PromptCandidate>* PromptChoice::find(int64_t tokens, int64_t cached) const {
  for (const Priced& p : priced_) {
    if (p.tokens == tokens && p.cached == cached) return &p.candidates;
  }
  return nullptr;
}

const std::vector<PromptCandidate>& PromptChoice::at(int64_t tokens, int64_t cached) {
  if (const auto* known = find(tokens, cached)) return *known;
  Priced made{tokens, cached, {}};
  const size_t ways =
      planners_.size() + (planners_.back()->ranks() > 1 ? weights_strategies_.size() : 0);
  for (size_t way = 0; way < ways; ++way) {
    made.candidates.push_back(simulated(way, tokens, cached));
  }
  return priced_.emplace_back(std::move(made)).candidates;
}

const std::vector<PromptCandidate>& PromptChoice::halfway(int64_t least, int64_t most,
                                                          int64_t cached) {
  const int64_t tokens = least + (most - least) / 2;
  if (const auto* known = find(tokens, cached)) return *known;
  Priced made{tokens, cached, between(at(least, cached), at(most, cached), 0.5)};
  double fastest = std::numeric_limits<double>::infinity();
  for (const PromptCandidate& c : made.candidates) {
    if (c.refused.empty()) fastest = std::min(fastest, c.seconds);
  }
  for (size_t way = 0; way < made.candidates.size(); ++way) {
    PromptCandidate& c = made.candidates[way];
    if (c.refused.empty() && c.seconds <= kNear * fastest) c = simulated(way, tokens, cached);
  }
  return priced_.emplace_back(std::move(made)).candidates;
}

std::vector<PromptCandidate> PromptChoice::candidates(int64_t tokens, int64_t cached) {
  int64_t before = nearest_power(cached);
  if (before + power_above(tokens) > most_tokens_) before = std::min(before, power_below(cached));
  // Each rank has a token.
  const int64_t least =
      std::max(power_below(tokens), std::min<int64_t>(tokens, planners_.back()->ranks()));
  const int64_t most = std::max(tokens, std::min(power_above(tokens), most_tokens_ - before));
  if (least == tokens || most == tokens) return at(tokens, before);
  const std::vector<PromptCandidate>& shorter = at(least, before);
  const std::vector<PromptCandidate>& longer = at(most, before);
  const int64_t half = least + (most - least) / 2;
  const std::vector<PromptCandidate>& middle = halfway(least, most, before);
  return tokens <= half ? between(shorter, middle, part(least, tokens, half))
                        : between(middle, longer, part(half, tokens, most));
}

void PromptChoice::refuse_large(std::vector<PromptCandidate>& candidates) const {
  if (step_bytes_ == 0) return;
  double most = static_cast<double>(step_bytes_);
  for (size_t way = 0; way < planners_.size(); ++way) {
    const PromptCandidate& c = candidates[way];
    if (c.ranks() == planners_.back()->ranks()) most = std::max(most, c.bytes.activations);
  }
  for (PromptCandidate& c : candidates) {
    if (!c.refused.empty() || c.bytes.activations <= most) continue;
    c.refused = fmt::format("wants {:.1f} MB of activations a rank, there are {:.1f}",
                            c.bytes.activations / 1e6, most / 1e6);
  }
}

size_t PromptChoice::choose(int64_t tokens, int64_t cached,
                            const std::function<bool(int ranks)>& may) {
  const auto same = [&](const Priced& p) { return p.tokens == tokens && p.cached == cached; };
  auto known = std::ranges::find_if(latest_, same);
  if (known == latest_.end()) {
    if (latest_.size() == kLines) latest_.pop_back();
    Priced made{tokens, cached, candidates(tokens, cached)};
    refuse_large(made.candidates);
    known = latest_.insert(latest_.end(), std::move(made));
  }
  std::rotate(latest_.begin(), known, known + 1);
  std::vector<PromptCandidate> legal = latest_.front().candidates;
  for (PromptCandidate& c : legal) {
    if (c.refused.empty() && !may(c.ranks())) c.refused = "keys or their room are elsewhere";
  }
  return choose_candidate(legal).value();
}

int64_t PromptChoice::longest() const {
  int64_t tokens = 0;
  for (const Priced& p : latest_) tokens = std::max(tokens, p.tokens + p.cached);
  return tokens;
}

std::vector<std::string> PromptChoice::explain() const {
  std::vector<std::string> lines;
  for (const Priced& k : latest_) {
    const bool about = exact_ && planners_.back()->levels();
    std::string line =
        fmt::format("{}prompt of {} tokens behind {}: ", about ? "exact " : "", k.tokens, k.cached);
    line += k.candidates[choose_candidate(k.candidates).value()].name();
    for (const PromptCandidate& c : k.candidates) {
      line += c.refused.empty() ? fmt::format("; {} {:.3f} ms", c.name(), 1e3 * c.seconds)
                                : fmt::format("; {} refused: {}", c.name(), c.refused);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace braid
