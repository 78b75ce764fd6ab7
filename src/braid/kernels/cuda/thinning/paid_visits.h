#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "braid/ops/paid_keys.h"

// Scoring queries and their keys as the kernel of paid_keys takes both. Pure host code.
namespace braid::cuda {

constexpr int kTileKeys = 64;      // rows of k that a warp scores
constexpr int kMostPaidPairs = 3;  // own, thinned and pulled keys

// A Q segment, with its place in sums and logs.
struct ScoringRun {
  int32_t q_row = 0;
  int32_t queries = 0;
  int32_t tiles = 0;  // of all its visits
  int64_t sums = 0;   // first of [heads, queries * group, tiles]
  int64_t logs = 0;   // first of [heads, queries * group]
};

// A run's keys in a KV segment, as rows of the pair's k: the first query sees [begin, sees), each
// next query a key more, up to `end`.
struct ScoringVisit {
  int32_t run = 0;
  int32_t begin = 0, end = 0, sees = 0;
  int32_t tile = 0;  // the first tile's place among the run's tiles
};

struct PaidVisits {
  std::vector<ScoringRun> runs;
  std::vector<ScoringVisit> visits;               // by pair, each pair's in the order of runs
  std::array<int, kMostPaidPairs + 1> of_pair{};  // a pair's first visit; then the end
  int64_t sums = 0, logs = 0;                     // elements
  int64_t most_rows = 0;                          // queries * group of the longest run
};

// `rows`: of each pair's k. Fails with kUnsupported on windows, dual chunks, cut groups and more
// than kMostPaidPairs pairs.
PaidVisits paid_visits(const ops::PaidKeysAttrs& attrs, std::span<const int64_t> rows);

}  // namespace braid::cuda
