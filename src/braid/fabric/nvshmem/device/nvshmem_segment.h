#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "braid/fabric/nvshmem/device/nvshmem_heap.h"
#include "braid/fabric/symmetric.h"

namespace braid::fabric {

class NvshmemSegment;

// The live segments of a world, to find an address' segment.
struct NvshmemTable {
  std::mutex mutex;
  std::vector<NvshmemSegment*> segments;
};

// All ranks' parts of an allocation in NVSHMEM's heap, as this process' GPU sees them.
class NvshmemSegment final : public Segment {
 public:
  NvshmemSegment(NvshmemHeap& heap, std::shared_ptr<NvshmemTable> table, NvshmemHeap::Part part,
                 std::string name, int64_t bytes)
      : Segment(std::move(name), bytes),
        heap_(heap),
        table_(std::move(table)),
        part_(std::move(part)) {
    std::lock_guard lock(table_->mutex);
    table_->segments.push_back(this);
  }
  ~NvshmemSegment() override {
    {
      std::lock_guard lock(table_->mutex);
      std::erase(table_->segments, this);
    }
    heap_.give(part_.place, bytes());
  }

  std::byte* part(int rank) const { return part_.parts[static_cast<size_t>(rank)]; }
  std::byte* map(int /*from*/, int of) const override { return part(of); }

 private:
  NvshmemHeap& heap_;
  const std::shared_ptr<NvshmemTable> table_;
  const NvshmemHeap::Part part_;
};

}  // namespace braid::fabric
