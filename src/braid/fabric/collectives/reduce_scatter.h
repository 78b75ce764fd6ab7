#pragma once

#include <cstdint>
#include <span>

#include "braid/backend/cpu/team.h"
#include "braid/fabric/comm.h"

namespace braid::fabric {

// out_r[i] = sum_p in_p[begin_r + i], i < counts[r], begin_r = counts[0] + ... + counts[r-1]; added
// in the group's order, the same bits at every repetition.
//
// f32 in  // [sum of counts]
// f32 out // [counts[r]], disjoint from in or in + begin_r. Counts may be zero, and are equal on
// all ranks. Team and errors as for all_reduce. Sends n - counts[r] floats.
void reduce_scatter(Comm& comm, const cpu::Team& team, const float* in, float* out,
                    std::span<const int64_t> counts);

// out_r[m, j] = sum_p in_p[m, begin_r + j]: the same by columns, in [M, N], out [M, counts[r]].
void reduce_scatter_columns(Comm& comm, const cpu::Team& team, const float* in, float* out,
                            int64_t M, std::span<const int64_t> counts);

}  // namespace braid::fabric
