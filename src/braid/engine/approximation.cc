#include "braid/engine/approximation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace braid {

std::string to_string(const Approximation& approximation) {
  const auto& [levels, shares] = approximation;
  return fmt::format(
      "keep {} in groups of {} ranks, by {}{}: {:.1f}% of pairs, {:.1f}% of far keys",
      fmt::join(levels.keep, ", "), fmt::join(levels.groups, ", "), to_string(levels.importance),
      levels.drop_queries ? ", queries dropped" : "", 100 * shares.pair_share(),
      100 * shares.key_share());
}

nlohmann::ordered_json json_of(const Approximation& approximation) {
  const auto& [levels, shares] = approximation;
  return {{"keep", levels.keep},
          {"groups", levels.groups},
          {"importance", to_string(levels.importance)},
          {"drop_queries", levels.drop_queries},
          {"pairs", shares.pair_share()},
          {"far_keys", shares.key_share()}};
}

}  // namespace braid
