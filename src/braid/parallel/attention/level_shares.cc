#include "braid/parallel/attention/level_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

// Pairs that dense attention computes; a query sees `window` keys at most, itself among them.
double dense_pairs(int64_t tokens, int64_t cached, int64_t window) {
  const auto sum_to = [](int64_t n) {
    return static_cast<double>(n) * static_cast<double>(n + 1) / 2;
  };
  const int64_t end = cached + tokens;
  if (window == 0) return sum_to(end) - sum_to(cached);
  const int64_t growing = std::clamp(window, cached, end);  // queries with fewer keys than a window
  return sum_to(growing) - sum_to(cached) +
         static_cast<double>(end - growing) * static_cast<double>(window);
}

// Runs of neighbouring numbers: "1 to 30, 33".
std::string runs_of(const std::vector<size_t>& numbers) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    const size_t last = numbers[end - 1];
    if (end - i < 3) {
      for (size_t n = numbers[i]; n <= last; ++n) runs.push_back(std::to_string(n));
    } else {
      runs.push_back(fmt::format("{} to {}", numbers[i], last));
    }
    i = end;
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

}  // namespace

LevelShares& LevelShares::operator+=(const LevelShares& other) {
  pairs += other.pairs, dense_pairs += other.dense_pairs;
  far_keys += other.far_keys, dense_far_keys += other.dense_far_keys;
  return *this;
}

LevelShares LevelShares::operator-(const LevelShares& other) const {
  return {pairs - other.pairs, dense_pairs - other.dense_pairs, far_keys - other.far_keys,
          dense_far_keys - other.dense_far_keys};
}

LevelShares between(const LevelShares& a, const LevelShares& b, double part) {
  return {std::lerp(a.pairs, b.pairs, part), std::lerp(a.dense_pairs, b.dense_pairs, part),
          std::lerp(a.far_keys, b.far_keys, part),
          std::lerp(a.dense_far_keys, b.dense_far_keys, part)};
}

LevelShares level_shares(const KeyLevels& levels, std::span<const AttentionLayer> layers,
                         const SequenceLayout& q, int64_t cached) {
  const std::vector<int64_t> none(levels.groups.back());
  const auto kept = static_cast<double>(pulled_rows(levels, q, none));
  const auto all = static_cast<double>(pulled_rows(keeping_all(levels), q, none));
  const double dropped = (1 - kept_pairs(levels, q)) * dense_pairs(q.length(), 0, 0);
  LevelShares shares;
  for (const AttentionLayer& layer : layers) {
    const double pairs = dense_pairs(q.length(), cached, layer.window);
    shares += {.pairs = layer.thins ? pairs - dropped : pairs, .dense_pairs = pairs};
    if (layer.window != 0) continue;
    shares += {.far_keys = layer.thins ? kept : all, .dense_far_keys = all};
  }
  return shares;
}

std::string explain_levels(const KeyLevels& levels, std::span<const AttentionLayer> layers,
                           const SequenceLayout& q, int64_t cached) {
  std::vector<size_t> thinned, dense;
  for (size_t i = 0; i < layers.size(); ++i) (layers[i].thins ? thinned : dense).push_back(i);
  const AttentionLayer any{.thins = true};
  const LevelShares shares = level_shares(levels, {&any, 1}, q, cached);
  return fmt::format("layers {}: {:.1f}% of pairs, {:.1f}% of far keys; {}: all", runs_of(thinned),
                     100 * shares.pair_share(), 100 * shares.key_share(), runs_of(dense));
}

}  // namespace braid
