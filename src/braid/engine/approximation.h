#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "braid/parallel/attention/level_shares.h"

namespace braid {

// Keys and pairs left out by a runner's prompts so far, or by some of the prompts.
struct Approximation {
  KeyLevels levels;
  LevelShares shares;
};

// "keep 0.5 in groups of 4 ranks, by own: 76.3% of pairs, 60.1% of far keys".
std::string to_string(const Approximation& approximation);

// An object with keep, groups, importance, drop_queries, and the shares of pairs and far keys.
nlohmann::ordered_json json_of(const Approximation& approximation);

}  // namespace braid
