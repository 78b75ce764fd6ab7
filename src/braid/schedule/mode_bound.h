#pragma once

#include <array>

#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/profile.h"

namespace braid {

// The least communication that any run of a mode exposes, in seconds: what one attention takes
// beyond `compute` seconds of computation of each rank, whatever the Schedule, the kernels and the
// sizes of transfers are, as long as ranks compute and move what the mode says (attention_rows).
// Three facts hold for each such run, for any number of ranks:
//   - a port (of a rank, or of a machine where the link's port is shared) needs
//     bytes / bytes_per_second each way;
//   - without a mask a result needs all keys of its head, so the last results of a rank leave after
//     its last keys came, and none leaves before all keys of one head did;
//   - whoever waits for a transfer waits for latency_seconds, too.
// Computation is free to run at any time, so a mode that computes for long is bound by nothing: a
// bound of 0 says that a better Schedule could hide all. What a given Schedule has to expose says
// schedule_bound. `links` by LinkClass, with speeds where rows go that way.
double mode_bound(const SequenceAttention& attention, const SequenceMesh& mesh, double compute,
                  const std::array<LinkProfile, 3>& links);

}  // namespace braid
