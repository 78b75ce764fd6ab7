#pragma once

#include "braid/fabric/fabric.h"

namespace braid::fabric {

// A meeting of the threads of all ranks outside the hot path, each wait with the fabric's deadline.
// Made and waited at by every rank of the world, in the same order.
class HostBarrier {
 public:
  explicit HostBarrier(Endpoint& endpoint, std::string_view name = "host_barrier")
      : endpoint_(endpoint), slots_(endpoint.allocate<Signal>(endpoint.world_size(), name)) {}

  // Every rank has called it as often.
  void wait() {
    ++step_;
    for (int p = 0; p < endpoint_.world_size(); ++p) {
      endpoint_.signal(slots_.at(endpoint_.rank()), p, SignalOp::set, step_, {});
    }
    for (int p = 0; p < endpoint_.world_size(); ++p) {
      endpoint_.wait(slots_.at(p), step_, {.from = p});
    }
  }

 private:
  Endpoint& endpoint_;
  SymBuf<Signal> slots_;  // [world_size]
  uint64_t step_ = 0;
};

}  // namespace braid::fabric
