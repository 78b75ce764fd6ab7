#pragma once

#include "braid/backend/cpu/team.h"
#include "braid/fabric/comm.h"

namespace braid::fabric {

// Returns once every thread of every rank of the group has called it. What the calling thread has
// put to members of the group before is then visible to them. One latency; P-1 signals per rank.
void barrier(Comm& comm, const cpu::Team& team = {});

}  // namespace braid::fabric
