#include "braid/fabric/peer/staged_link.h"

#include <cmath>

#include "braid/backend/cuda/device.h"
#include "braid/fabric/block_chunks.h"
#include "braid/fabric/peer/pace.h"

namespace braid::fabric {

StagedLink::StagedLink(int from_device, int to_device, std::optional<Link> speed, uint64_t* port)
    : from_device_(from_device),
      to_device_(to_device),
      speed_(speed),
      port_(port),
      ring_(from_device, to_device, kSlots) {}

void StagedLink::copy_chunk(std::byte* dst, const std::byte* src, const Block& block, bool last) {
  const size_t slot = next_;
  next_ = (next_ + 1) % kSlots;
  {
    const cuda::DeviceScope guard(from_device_);
    cuda::make_wait(sent(), ring_.empty(slot));  // nothing was recorded the first time: no wait
    ring_.fill(slot, src, block);
    if (speed_) {
      const double ns = static_cast<double>(block.bytes()) / speed_->bytes_per_second * 1e9;
      launch_pace(port_, std::llround(ns), last ? std::llround(speed_->latency_seconds * 1e9) : 0,
                  sent());
    }
    cuda::record(ring_.full(slot), sent());
  }
  const cuda::DeviceScope guard(to_device_);
  cuda::make_wait(arrived(), ring_.full(slot));
  ring_.drain(slot, dst, block);
  cuda::record(ring_.empty(slot), arrived());
}

void StagedLink::copy(std::byte* dst, const std::byte* src, const Block& block) {
  const std::vector<BlockChunk> chunks = chunks_of(block, StagingRing::kSlotBytes);
  for (const BlockChunk& chunk : chunks) {
    copy_chunk(dst + chunk.dst_offset, src + chunk.src_offset, chunk.block,
               &chunk == &chunks.back());
  }
}

}  // namespace braid::fabric
