#pragma once

#include <mutex>
#include <optional>

#include "braid/fabric/peer/staging_ring.h"

namespace braid::fabric {

// The path from a GPU to a GPU of another emulated machine: device -> pinned host memory -> device
// by copy engines, in chunks through a ring, so that both copies run at once. With a speed, the
// sender's clock paces the path. A mutex orders the transfers of both ends' threads.
class StagedLink {
 public:
  // `port` is a word in `from`'s memory: the clock of from's port, shared by the port's links.
  StagedLink(int from_device, int to_device, std::optional<Link> speed, uint64_t* port);

  // Enqueues the copy. The source is free after sent() reaches this copy, the data present after
  // arrived() does.
  void copy(std::byte* dst, const std::byte* src, const Block& block);

  std::mutex& mutex() { return mutex_; }
  int from_device() const { return from_device_; }
  int to_device() const { return to_device_; }
  cudaStream_t sent() const { return ring_.out(); }
  cudaStream_t arrived() const { return ring_.in(); }

 private:
  static constexpr size_t kSlots = 4;
  void copy_chunk(std::byte* dst, const std::byte* src, const Block& block, bool last);

  const int from_device_;
  const int to_device_;
  const std::optional<Link> speed_;
  uint64_t* const port_;
  std::mutex mutex_;
  StagingRing ring_;
  size_t next_ = 0;  // slot
};

}  // namespace braid::fabric
