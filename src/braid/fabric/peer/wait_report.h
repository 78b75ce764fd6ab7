#pragma once

#include <cstdint>

namespace braid::fabric {

// What a device wait says when its deadline has passed: one for each rank, in pinned host memory.
// The kernel writes `expired` last, at system scope.
struct WaitReport {
  uint32_t expired = 0;
  uint32_t tag = 0;   // Tag::id
  int32_t from = -1;  // rank of the world that should have signalled
  uint32_t expected = 0;
  uint32_t seen = 0;
  uint32_t unused = 0;
  uint64_t waited_ns = 0;
};

// Words of device memory of each rank that kernels and the host write.
struct PeerControl {
  uint32_t aborted = 0;       // waits of kernels end at once
  uint32_t reported = 0;      // claimed by the first wait of the rank that expires
  uint64_t port_free_at = 0;  // StagedLink
};

}  // namespace braid::fabric
