#pragma once

#include <vector>

#include "braid/ops/segment_attention.h"

namespace braid {

// A rank's level attention in calls that a kernel takes in a single launch: each over whole Q
// segments, with at most `most` KV segments (a Q segment with more has a call of its own). Calls
// that begin and finalize have states from row 0 on, since states are scratch there; other calls
// keep the rows of their states. Rows that follow each other become a KV segment: in pair `far` at
// any positions, since all far keys come before the queries.
std::vector<ops::SegmentAttentionAttrs> level_calls(const ops::SegmentAttentionAttrs& whole,
                                                    int far, int64_t most = ops::kMostSegments);

// The same for ranks with a few parts each, [calls, ranks]: no rank's call has more than `most` KV
// segments, and states keep their rows.
std::vector<std::vector<ops::SegmentAttentionAttrs>> level_calls(
    const std::vector<ops::SegmentAttentionAttrs>& ranks, int far,
    int64_t most = ops::kMostSegments);

// State rows of the call that needs most.
int64_t state_rows(const std::vector<ops::SegmentAttentionAttrs>& calls);

}  // namespace braid
