#include "braid/fabric/peer/staging_ring.h"

#include "braid/backend/cuda/device.h"
#include "braid/fabric/peer/copy_block.h"

namespace braid::fabric {

StagingRing::StagingRing(int from_device, int to_device, size_t slots) : slots_(slots) {
  {
    const cuda::DeviceScope scope(from_device);
    out_ = cuda::make_stream();
    for (Slot& slot : slots_) slot.full = cuda::make_event();
  }
  {
    const cuda::DeviceScope scope(to_device);
    in_ = cuda::make_stream();
    for (Slot& slot : slots_) slot.empty = cuda::make_event();
  }
  void* memory = nullptr;
  cuda::check_cuda(
      cudaHostAlloc(&memory, slots * kSlotBytes, cudaHostAllocPortable | cudaHostAllocMapped),
      "pinned memory of an emulated link");
  for (size_t i = 0; i < slots; ++i) {
    slots_[i].memory = static_cast<std::byte*>(memory) + i * kSlotBytes;
  }
}

StagingRing::~StagingRing() {
  cudaStreamSynchronize(out_.get());
  cudaStreamSynchronize(in_.get());
  cudaFreeHost(slots_[0].memory);
}

void StagingRing::fill(size_t slot, const std::byte* src, const Block& block) {
  copy_async(slots_[slot].memory, src,
             {block.row_bytes, block.rows, block.row_bytes, block.src_stride}, out_.get());
}

void StagingRing::drain(size_t slot, std::byte* dst, const Block& block) {
  copy_async(dst, slots_[slot].memory,
             {block.row_bytes, block.rows, block.dst_stride, block.row_bytes}, in_.get());
}

}  // namespace braid::fabric
