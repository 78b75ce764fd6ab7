#pragma once

#include "braid/engine/attention/attention_cuda.h"
#include "braid/fabric/peer/peer_fabric.h"

namespace braid::attention_modes {

// What the links of a topology on GPUs do, the slowest rank's.
LinkSpeed measure_links(fabric::PeerFabric& fabric, const Topology& topology, int64_t heads,
                        int64_t head_dim);

}  // namespace braid::attention_modes
