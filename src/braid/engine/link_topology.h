#pragma once

#include "braid/fabric/link.h"

namespace braid {

// Ranks of this process behind such links.
Topology topology_of(const fabric::LinkModel& links, int ranks);

}  // namespace braid
