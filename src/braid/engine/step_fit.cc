#include "braid/engine/step_fit.h"

#include <algorithm>

#include "braid/base/math.h"

namespace braid {

std::optional<int64_t> rank_tokens_that_fit(
    double room, const std::function<double(int64_t rank_tokens)>& bytes) {
  if (bytes(kRankTokens) <= room) return kRankTokens;
  if (bytes(kLeastRankTokens) > room) return {};
  for (int64_t tokens = kRankTokens / 2; tokens > kLeastRankTokens; tokens /= 2) {
    if (bytes(tokens) <= room) return tokens;
  }
  return kLeastRankTokens;
}

int64_t divided_step(int64_t context, int64_t ranks, double room,
                     const std::function<double(int64_t tokens)>& bytes) {
  const auto tokens = [&](int64_t rank_tokens) { return std::min(context, rank_tokens * ranks); };
  const auto chosen =
      rank_tokens_that_fit(room, [&](int64_t rank_tokens) { return bytes(tokens(rank_tokens)); });
  return tokens(chosen.value_or(kLeastRankTokens));
}

int64_t longest_that_fits(double room, int64_t refused, int64_t unit,
                          const std::function<double(int64_t tokens)>& bytes) {
  int64_t fits = 0, too_many = ceil_div(refused, unit);  // in units
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (bytes(middle * unit) <= room ? fits : too_many) = middle;
  }
  return fits * unit;
}

}  // namespace braid
