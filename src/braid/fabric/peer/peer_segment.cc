#include "braid/fabric/peer/peer_segment.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/handles.h"

namespace braid::fabric {

PeerSegment::PeerSegment(std::shared_ptr<SegmentTable> table, const LinkModel& links,
                         std::vector<int> devices, Where where, std::string name, int64_t bytes)
    : Segment(std::move(name), bytes),
      table_(std::move(table)),
      links_(links),
      devices_(std::move(devices)),
      where_(where) {
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  try {
    for (int device : devices_) {
      const cuda::DeviceScope guard(device);
      void* memory = nullptr;
      const cudaError_t error =
          where == Where::device
              ? cudaMalloc(&memory, size)
              : cudaHostAlloc(&memory, size, cudaHostAllocPortable | cudaHostAllocMapped);
      if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        size_t free = 0;
        size_t total = 0;
        if (where == Where::device) cudaMemGetInfo(&free, &total);
        fail(ErrorCode::kResource, "symmetric buffer '{}': no memory for {} bytes on {}{}",
             this->name(), bytes,
             where == Where::device ? fmt::format("cuda:{}", device) : "the host (pinned)",
             where == Where::device ? fmt::format(", {} of {} are free", free, total) : "");
      }
      cuda::check_cuda(error, "symmetric memory");
      parts_.push_back(static_cast<std::byte*>(memory));
      if (where == Where::host) {
        std::memset(memory, 0, size);
        continue;
      }
      const cuda::OwnedStream stream = cuda::make_stream();
      cuda::check_cuda(cudaMemsetAsync(memory, 0, size, stream.get()), "symmetric memory");
      cuda::check_cuda(cudaStreamSynchronize(stream.get()), "symmetric memory");
    }
  } catch (...) {
    release();
    throw;
  }
  std::lock_guard lock(table_->mutex);
  table_->segments.push_back(this);
}

PeerSegment::~PeerSegment() {
  {
    std::lock_guard lock(table_->mutex);
    std::erase(table_->segments, this);
  }
  release();
}

void PeerSegment::release() {
  for (std::byte* part : parts_) where_ == Where::device ? cudaFree(part) : cudaFreeHost(part);
  parts_.clear();
}

std::byte* PeerSegment::map(int from, int of) const {
  const int ranks = static_cast<int>(devices_.size());
  return links_.between(from, of, ranks) == LinkClass::cluster ? nullptr : part(of);
}

}  // namespace braid::fabric
