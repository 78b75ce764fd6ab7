#pragma once

#include <vector>

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/fabric.h"

namespace braid::fabric {

// The path out of a GPU and into another through pinned host memory, by copy engines: slots of
// kSlotBytes, a stream at each end, and for each slot an event of either end.
class StagingRing {
 public:
  static constexpr int64_t kSlotBytes = 1 << 20;

  StagingRing(int from_device, int to_device, size_t slots);
  ~StagingRing();  // waits for both streams
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  size_t size() const { return slots_.size(); }
  cudaStream_t out() const { return out_.get(); }  // of from_device
  cudaStream_t in() const { return in_.get(); }    // of to_device
  // Recorded by the caller: the slot is filled, in out(); it is drained, in in().
  const cuda::OwnedEvent& full(size_t slot) const { return slots_[slot].full; }
  const cuda::OwnedEvent& empty(size_t slot) const { return slots_[slot].empty; }

  // Enqueues the copy of a block with at most kSlotBytes into the slot, without gaps; or out again.
  void fill(size_t slot, const std::byte* src, const Block& block);
  void drain(size_t slot, std::byte* dst, const Block& block);

 private:
  struct Slot {
    std::byte* memory = nullptr;
    cuda::OwnedEvent full;
    cuda::OwnedEvent empty;
  };
  cuda::OwnedStream out_;
  cuda::OwnedStream in_;
  std::vector<Slot> slots_;
};

}  // namespace braid::fabric
