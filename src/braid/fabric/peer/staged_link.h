#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/fabric.h"

namespace braid::fabric {

// The way from one GPU to one of another emulated machine: device -> pinned host memory -> device
// by copy engines, in chunks through a ring, so that both copies run at once. With a speed it is
// paced on the sender's clock. Its mutex orders the transfers of both ends' threads.
class StagedLink {
 public:
  // `port` is a word of `from`'s memory, its port's clock, shared by its links.
  StagedLink(int from_device, int to_device, std::optional<Link> speed, uint64_t* port);
  ~StagedLink();
  StagedLink(const StagedLink&) = delete;
  StagedLink& operator=(const StagedLink&) = delete;

  // Enqueues the copy. The source is free once sent() has come so far, the data there once
  // arrived() has.
  void copy(std::byte* dst, const std::byte* src, const Block& block);

  std::mutex& mutex() { return mutex_; }
  int from_device() const { return from_device_; }
  int to_device() const { return to_device_; }
  cudaStream_t sent() const { return out_.get(); }
  cudaStream_t arrived() const { return in_.get(); }

 private:
  static constexpr int64_t kChunkBytes = 1 << 20;
  static constexpr int kChunks = 4;
  struct Chunk {
    std::byte* memory = nullptr;  // pinned, of the ring
    cuda::OwnedEvent full;
    cuda::OwnedEvent empty;
  };
  void copy_chunk(std::byte* dst, const std::byte* src, const Block& block, bool last);

  const int from_device_;
  const int to_device_;
  const std::optional<Link> speed_;
  uint64_t* const port_;
  std::mutex mutex_;
  cuda::OwnedStream out_;  // of from_device
  cuda::OwnedStream in_;   // of to_device
  std::array<Chunk, kChunks> chunks_;
  int next_ = 0;
};

// dst = src in `stream`, of which either may be another GPU's or the host's.
void copy_async(std::byte* dst, const std::byte* src, const Block& block, cudaStream_t stream);

}  // namespace braid::fabric
