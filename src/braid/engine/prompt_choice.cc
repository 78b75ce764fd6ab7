#include "braid/engine/prompt_choice.h"

#include <algorithm>
#include <bit>

#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

int size_class(int64_t n) {
  return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(n, 1) - 1));
}

}  // namespace

PromptChoice::PromptChoice(const Planners& planners, std::shared_ptr<const OpScheduler> strategy,
                           Profile profile)
    : planners_(planners),
      strategy_(std::move(strategy)),
      weights_strategy_(find_strategy("sequence_parallel")),
      profile_(std::move(profile)) {}

const PromptChoice::Known& PromptChoice::known(int64_t tokens, int64_t cached) {
  const auto it = std::ranges::find_if(known_, [&](const Known& k) {
    return size_class(k.tokens) == size_class(tokens) &&
           size_class(k.cached) == size_class(cached) && (k.cached > 0) == (cached > 0);
  });
  if (it != known_.end()) return *it;
  Known& made = known_.emplace_back(Known{tokens, cached, {}});
  for (const auto& planner : planners_) {
    made.candidates.push_back(tokens_candidate(*planner, *strategy_, tokens, cached,
                                               CostModel(profile_, planner->topology())));
  }
  const ForwardPlanner& last = *planners_.back();
  if (last.ranks() > 1) {
    made.candidates.push_back(weights_candidate(last, *weights_strategy_, tokens, cached,
                                                CostModel(profile_, last.topology())));
  }
  return made;
}

size_t PromptChoice::choose(int64_t tokens, int64_t cached,
                            const std::function<bool(int ranks)>& may) {
  std::vector<PromptCandidate> legal = known(tokens, cached).candidates;
  for (PromptCandidate& c : legal) {
    if (c.refused.empty() && !may(c.ranks())) c.refused = "keys or their room are elsewhere";
  }
  return choose_candidate(legal).value();
}

std::vector<std::string> PromptChoice::explain() const {
  std::vector<std::string> lines;
  for (const Known& k : known_) {
    std::string line = fmt::format("prompt of {} tokens behind {}: ", k.tokens, k.cached);
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
