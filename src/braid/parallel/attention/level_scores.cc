#include "braid/parallel/attention/level_scores.h"

#include <algorithm>

namespace braid {

ops::KeyScoresAttrs key_scores(const LevelRows& level, int rank, int64_t scoring, int64_t rows) {
  ops::KeyScoresAttrs attrs{.rows = rows, .parts = {}};
  const std::vector<PromptPart>& parts = level.parts();
  const auto queries = [&](const PromptPart& part) { return std::min(scoring, part.rows); };
  for (size_t i = 0; i < parts.size(); ++i) {
    const PromptPart& p = parts[i];
    if (p.rank != rank || p.rows == 0) continue;
    ops::ScoredPart part{.row = p.row,
                         .rows = p.rows,
                         .paid_row = level.cached(rank) + p.row,
                         .queries = queries(p),
                         .sees = p.rows - queries(p) + 1};
    if (const int64_t own = level.wanted(i, rank); own > 0) {
      part.sums.push_back({.paid = kThinned, .row = level.thinned_row(i), .rows = own});
    }
    for (const ReadRows& read : level.read(rank)) {
      if (read.part != i) continue;
      part.sums.push_back({.paid = kPulled, .row = read.row, .rows = read.rows});
    }
    for (size_t j = i + 1; j < parts.size(); ++j) {
      if (parts[j].rows == 0) continue;
      part.readers.push_back({.keys = level.kept(j, i), .queries = queries(parts[j])});
    }
    attrs.parts.push_back(part);
  }
  return attrs;
}

}  // namespace braid
