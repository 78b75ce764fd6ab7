#pragma once

#include "braid/parallel/topology.h"

namespace braid {

// The topology of each of `groups` equal groups of ranks: a share of the machines if these divide
// evenly, else a share of each machine's devices. Fails with kInvalidArgument without such groups.
Topology cfg_group(Topology topology, int groups);

// Passes of guidance that a group computes in turn, of two in all.
inline int cfg_passes(int groups) {
  return 2 / groups;
}

}  // namespace braid
