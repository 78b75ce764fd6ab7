#pragma once

#include "braid/backend/cpu/team.h"
#include "braid/fabric/comm.h"

namespace braid::fabric {

// Returns after every thread of every rank of the group has called barrier. Earlier puts of the
// calling thread to members of the group are then visible. One latency; P-1 signals per rank.
void barrier(Comm& comm, const cpu::Team& team = {});

}  // namespace braid::fabric
