#pragma once

#include "braid/engine/attention/attention_cuda.h"
#include "braid/fabric/peer/peer_fabric.h"

namespace braid::attention_modes {

// Measured link speeds of a topology on GPUs; the slowest rank counts.
LinkSpeed measure_links(fabric::PeerFabric& fabric, const Topology& topology, int64_t heads,
                        int64_t head_dim);

}  // namespace braid::attention_modes
