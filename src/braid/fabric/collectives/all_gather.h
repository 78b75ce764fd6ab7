#pragma once

#include <cstdint>
#include <span>

#include "braid/backend/cpu/team.h"
#include "braid/fabric/comm.h"

namespace braid::fabric {

// out_r[begin_p + i] = in_p[i], i < bytes[p], begin_p = bytes[0] + ... + bytes[p-1]. Moves of any
// dtype: sizes are in bytes, may be zero, and are equal on all ranks.
//
// in   // [bytes[r]], disjoint from out or out + begin_r
// out  // [sum of bytes]
// Team and errors as for all_reduce. Sends (P-1) bytes[r].
void all_gather(Comm& comm, const cpu::Team& team, const void* in, void* out,
                std::span<const int64_t> bytes);

// out_r[m, begin_p + j] = in_p[m, j]: the same by columns of M rows, column_bytes[p] wide in rank
// p; in [M, column_bytes[r]], out [M, sum of column_bytes], disjoint.
void all_gather_columns(Comm& comm, const cpu::Team& team, const void* in, void* out, int64_t M,
                        std::span<const int64_t> column_bytes);

}  // namespace braid::fabric
