#pragma once

#include "braid/attention_cuda.h"
#include "braid/fabric/peer/peer_fabric.h"

namespace braid::app {

// All ranks are here, on the host.
class Meeting {
 public:
  explicit Meeting(fabric::PeerEndpoint& endpoint);
  void wait();

 private:
  fabric::PeerEndpoint& endpoint_;
  fabric::SymBuf<fabric::Signal> slots_;
  uint64_t step_ = 0;
};

// What the links of a topology on GPUs do, the slowest rank's.
LinkSpeed measure_links(fabric::PeerFabric& fabric, const Topology& topology, int64_t heads,
                        int64_t head_dim);

}  // namespace braid::app
