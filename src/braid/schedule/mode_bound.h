#pragma once

#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/profile.h"

namespace braid {

// The least communication that any run of a mode exposes, in seconds: an attention's time beyond
// `compute` seconds of computation on each rank, for any Schedule, kernels and sizes of transfers,
// as long as ranks compute and move the mode's rows (attention_rows). Three facts hold for each
// run, for any number of ranks:
//   - a port (of a rank, or of a machine if the link's port is shared) needs
//     bytes / bytes_per_second each way;
//   - without a mask a result needs all keys of its head: a rank's last results leave after its
//     last keys came, and no result leaves before all keys of a head came;
//   - waiting for a transfer includes latency_seconds.
// Computation may run at any time, so a long computation bounds nothing: a bound of 0 says that a
// better Schedule could hide all communication. schedule_bound gives the least for a given
// Schedule. `links` by LinkClass, with speeds for classes in use.
double mode_bound(const SequenceAttention& attention, const SequenceMesh& mesh, double compute,
                  const PerLink<LinkProfile>& links);

}  // namespace braid
