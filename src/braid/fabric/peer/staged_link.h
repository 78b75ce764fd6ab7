#pragma once

#include <mutex>
#include <optional>

#include "braid/fabric/peer/staging_ring.h"

namespace braid::fabric {

// The way from one GPU to one of another emulated machine: device -> pinned host memory -> device
// by copy engines, in chunks through a ring, so that both copies run at once. With a speed it is
// paced on the sender's clock. Its mutex orders the transfers of both ends' threads.
class StagedLink {
 public:
  // `port` is a word of `from`'s memory, its port's clock, shared by its links.
  StagedLink(int from_device, int to_device, std::optional<Link> speed, uint64_t* port);

  // Enqueues the copy. The source is free once sent() has come so far, the data there once
  // arrived() has.
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
