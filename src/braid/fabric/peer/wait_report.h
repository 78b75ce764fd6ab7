#pragma once

#include <cstdint>

namespace braid::fabric {

// Report on a device wait past its deadline: one per rank, in pinned host memory. The kernel writes
// `expired` last, at system scope.
struct WaitReport {
  uint32_t expired = 0;
  uint32_t tag = 0;   // Tag::id
  int32_t from = -1;  // world rank that should have signalled
  uint32_t expected = 0;
  uint32_t seen = 0;
  uint32_t unused = 0;
  uint64_t waited_ns = 0;
};

// Words in each rank's device memory, written by kernels and the host.
struct PeerControl {
  uint32_t aborted = 0;       // waits of kernels end at once
  uint32_t reported = 0;      // claimed by the rank's first expired wait
  uint64_t port_free_at = 0;  // StagedLink
};

}  // namespace braid::fabric
