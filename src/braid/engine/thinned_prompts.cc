#include "braid/engine/thinned_prompts.h"

#include <algorithm>

#include "braid/engine/newest_lines.h"

namespace braid {

ThinnedPrompts::ThinnedPrompts(KeyLevels levels, const MakeForward& model)
    : levels_(std::move(levels)),
      layers_(attention_layers(
          model({.capacity = {1, 1, 1}, .pages = 1, .page_size = 1, .pages_per_sequence = 1}))) {}

bool ThinnedPrompts::any_layer() const {
  return std::ranges::any_of(layers_, &AttentionLayer::thins);
}

void ThinnedPrompts::count(const SequenceLayout& q, int64_t cached) {
  const LevelShares shares = level_shares(levels_, layers_, q, cached);
  shares_ += shares;
  last_ = shares;
  const std::string about =
      shares.thinned()
          ? fmt::format("approximate, {:.1f}% of its pairs; {}", 100 * shares.pair_share(),
                        explain_levels(levels_, layers_, q, cached))
          : "exact, nothing is left out";
  add_newest(lines_, fmt::format("prompt of {} tokens{}: {}", q.length(),
                                 cached > 0 ? fmt::format(" behind {}", cached) : "", about));
}

std::optional<Approximation> ThinnedPrompts::made() const {
  if (!shares_.thinned()) return {};
  return Approximation{levels_, shares_};
}

std::optional<Approximation> ThinnedPrompts::last() const {
  if (!last_ || !last_->thinned()) return {};
  return Approximation{levels_, *last_};
}

std::vector<std::string> ThinnedPrompts::explain() const {
  std::vector<std::string> lines;
  if (const auto approximation = made())
    lines.push_back("approximate: " + to_string(*approximation));
  lines.insert(lines.end(), lines_.begin(), lines_.end());
  return lines;
}

}  // namespace braid
