#include "braid/fabric/collectives/barrier.h"

// a round without data: wait_r(signal of p) for all p
namespace braid::fabric {

void barrier(Comm& comm, const cpu::Team& team) {
  team.barrier();
  if (team.index == 0) {
    Exchange exchange(comm, 0, comm.tags().barrier);
    exchange.send([](int) {});
    exchange.take([](int, const std::byte*) {});
  }
  team.barrier();
}

}  // namespace braid::fabric
