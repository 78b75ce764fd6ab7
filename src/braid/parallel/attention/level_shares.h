#pragma once

#include <span>
#include <string>

#include "braid/parallel/attention/key_levels.h"
#include "braid/parallel/attention/logical_attention.h"

namespace braid {

// How much of dense attention a model with KeyLevels computes, over all layers. Prompts add.
struct LevelShares {
  double pairs = 0;  // of a query and a key
  double dense_pairs = 0;
  // Rows of keys that ranks read from each other, or would in a ring over the levels' ranks, of a
  // prompt's own tokens, in layers without a window.
  double far_keys = 0;
  double dense_far_keys = 0;

  bool thinned() const { return dense_pairs - pairs > 0.5; }  // a pair at least, beyond rounding
  double pair_share() const { return dense_pairs > 0 ? pairs / dense_pairs : 1; }
  double key_share() const { return dense_far_keys > 0 ? far_keys / dense_far_keys : 1; }
  LevelShares& operator+=(const LevelShares& other);
  LevelShares operator-(const LevelShares& other) const;
};

// Each count at `part` of the way from `a` to `b`.
LevelShares between(const LevelShares& a, const LevelShares& b, double part);

// Of a prompt's tokens `q` behind `cached` earlier tokens, whose keys all queries see.
LevelShares level_shares(const KeyLevels& levels, std::span<const AttentionLayer> layers,
                         const SequenceLayout& q, int64_t cached);

// "layers 1 to 30: 74.7% of pairs, 50.0% of far keys; 0, 31: all".
std::string explain_levels(const KeyLevels& levels, std::span<const AttentionLayer> layers,
                           const SequenceLayout& q, int64_t cached);

}  // namespace braid
