#pragma once

#include <cstdint>
#include <span>

#include "braid/backend/cpu/team.h"
#include "braid/fabric/comm.h"

namespace braid::fabric {

// piece q of rank p's in = piece p of rank q's out. bytes[p * P + q] are p's bytes for q: the
// whole matrix, equal on all ranks; entries may be zero.
//
// in   // row r of the matrix: pieces for rank 0, 1, ... without gaps
// out  // column r: pieces from rank 0, 1, ... without gaps; disjoint from in
// Team and errors as for all_reduce. Sends sum_{q != r} bytes[r * P + q].
void all_to_all(Comm& comm, const cpu::Team& team, const void* in, void* out,
                std::span<const int64_t> bytes);

}  // namespace braid::fabric
