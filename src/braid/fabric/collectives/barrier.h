#pragma once

#include "braid/backend/cpu/team.h"
#include "braid/fabric/comm.h"

namespace braid::fabric {

// Returns after every thread of every rank in the group has called barrier. The calling thread's
// earlier puts to members of the group are then visible. A single latency; P-1 signals per rank.
void barrier(Comm& comm, const cpu::Team& team = {});

}  // namespace braid::fabric
