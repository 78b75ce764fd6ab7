#pragma once

#include "braid/ops/paid_keys.h"
#include "braid/parallel/attention/level_rows.h"

namespace braid {

// Index of a value among the (k, v) pairs of a level attention's calls.
enum LevelPair : int { kOwn, kThinned, kPulled };

// With Importance::previous: how a rank's keys get scores, from sums that the last `scoring`
// queries of all parts paid each pair's rows. The scores have `rows` rows.
ops::KeyScoresAttrs key_scores(const LevelRows& level, int rank, int64_t scoring, int64_t rows);

}  // namespace braid
