#pragma once

#include <cstdint>
#include <string_view>

#include "braid/backend/cpu/team.h"
#include "braid/fabric/comm.h"

namespace braid::fabric {

enum class AllReduceAlgorithm : uint8_t {
  one_shot,  // everyone sends all to everyone, one latency, (P-1) n sent per rank
  two_shot,  // reduce-scatter, then all-gather: two latencies, 2 (P-1) n / P sent per rank
};
std::string_view to_string(AllReduceAlgorithm algorithm);

// The cheaper one for `bytes` per rank by latency, volume and the cost of the sums: one-shot waits
// once for every slot_bytes, two-shot keeps the link busy. Pure.
AllReduceAlgorithm choose_all_reduce(int ranks, int64_t bytes, Link slowest, int64_t slot_bytes);

// out_r[i] = sum_p in_p[i], added in the group's order: the same bits on every rank, at every
// repetition, by either algorithm and any number of lanes.
//
// f32 in, out  // [n], equal or disjoint. Called by every thread of the rank's team with the same
// arguments, the input made and a team barrier since; the output is there for all threads after the
// next team barrier. Throws kDeadline and kAborted.
void all_reduce(Comm& comm, const cpu::Team& team, const float* in, float* out, int64_t n);
void all_reduce(Comm& comm, const cpu::Team& team, const float* in, float* out, int64_t n,
                AllReduceAlgorithm algorithm);

}  // namespace braid::fabric
