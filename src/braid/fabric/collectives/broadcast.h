#pragma once

#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/fabric/comm.h"

namespace braid::fabric {

// data_r = data_root. `root` is an index of the group; data [bytes] on every rank. Every rank waits
// for all others, so that the root cannot run ahead. Team and errors as for all_reduce. The root
// sends (P-1) bytes.
void broadcast(Comm& comm, const cpu::Team& team, void* data, int64_t bytes, int root);

}  // namespace braid::fabric
