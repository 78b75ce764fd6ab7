#include "braid/fabric/nvshmem/device/nvshmem_heap.h"

#include <cuda_runtime.h>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/handles.h"
#include "braid/base/error.h"

namespace braid::fabric {

NvshmemHeap::NvshmemHeap(const NvshmemMeeting& meeting, int device)
    : library_(CUDART_VERSION / 1000), device_(device) {
  const cuda::DeviceScope scope(device);
  agree_on_version(meeting, library_);
  const std::string id = meeting.broadcast(
      "NVSHMEM's place to meet", meeting.process == 0 ? library_.unique_id() : std::string());
  cuda::check_cuda(cudaFree(nullptr), "a GPU's context");
  library_.start(meeting.process, meeting.processes, id);
}

void NvshmemHeap::grow(const NvshmemMeeting& meeting, int64_t bytes, std::string_view name) {
  const int64_t block = heap_block(bytes);
  size_t free = 0, total = 0;
  cuda::check_cuda(cudaMemGetInfo(&free, &total), "free memory");
  agree_on_room(meeting, name, block,
                {device_, static_cast<int64_t>(free), static_cast<int64_t>(total)});
  std::byte* const own = library_.allocate(block);
  if (own == nullptr) {
    fail(ErrorCode::kResource,
         "symmetric buffer '{}': NVSHMEM has no {} bytes on cuda:{}, {} of {} are free", name,
         block, device_, free, total);
  }
  std::vector<std::byte*> parts;
  for (int p = 0; p < meeting.processes; ++p) {
    parts.push_back(p == meeting.process ? own : library_.pointer(own, p));
    if (parts.back() == nullptr) {
      fail(ErrorCode::kUnsupported, "the GPU of rank {} has no peer path to the GPU of rank {}",
           meeting.process, p);
    }
  }
  std::lock_guard lock(mutex_);
  ranges_.add_block(block);
  blocks_.push_back(std::move(parts));
}

NvshmemHeap::Part NvshmemHeap::allocate(const NvshmemMeeting& meeting, int64_t bytes,
                                        std::string_view name) {
  const cuda::DeviceScope scope(device_);
  const auto take = [&] {
    std::lock_guard lock(mutex_);
    return ranges_.take(bytes);
  };
  std::optional<HeapRanges::Place> place = take();
  meeting.agree("allocations", place ? fmt::format("'{}' of {} bytes at {} of block {}", name,
                                                   bytes, place->offset, place->block)
                                     : fmt::format("'{}' of {} bytes in a new block", name, bytes));
  if (!place) {
    grow(meeting, HeapRanges::rounded(bytes), name);
    place = take();
    BRAID_CHECK(place, "no room in a new block");
  }
  Part part{*place, {}};
  for (std::byte* block : blocks_[static_cast<size_t>(place->block)]) {
    part.parts.push_back(block + place->offset);
  }
  const cuda::OwnedStream stream = cuda::make_stream();
  std::byte* const own = part.parts[static_cast<size_t>(meeting.process)];
  cuda::check_cuda(
      cudaMemsetAsync(own, 0, static_cast<size_t>(HeapRanges::rounded(bytes)), stream.get()),
      "symmetric memory");
  cuda::check_cuda(cudaStreamSynchronize(stream.get()), "symmetric memory");
  meeting.agree("zeroed memory", name);  // nobody writes before
  return part;
}

void NvshmemHeap::give(const HeapRanges::Place& place, int64_t bytes) {
  std::lock_guard lock(mutex_);
  ranges_.give(place, bytes);
}

NvshmemHeap& nvshmem_heap(const NvshmemMeeting& meeting, int device) {
  static std::unique_ptr<NvshmemHeap> heap;
  if (!heap) heap = std::make_unique<NvshmemHeap>(meeting, device);
  if (heap->device() != device) {
    fail(ErrorCode::kUnsupported, "NVSHMEM runs on cuda:{} in this process, not on cuda:{}",
         heap->device(), device);
  }
  return *heap;
}

}  // namespace braid::fabric
