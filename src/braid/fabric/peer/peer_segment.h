#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "braid/fabric/link.h"
#include "braid/fabric/symmetric.h"

namespace braid::fabric {

class PeerSegment;

// The live segments of a world, to find an address' segment.
struct SegmentTable {
  std::mutex mutex;
  std::vector<PeerSegment*> segments;
};

// Every rank's part of an allocation: a cudaMalloc on the rank's GPU, or, for signals, pinned host
// memory mapped by all GPUs. A host wait is then a load and a device's signal a posted write; with
// device memory each look would cost the host a copy of 10 us.
class PeerSegment final : public Segment {
 public:
  enum class Where { device, host };

  // Throws kResource with the bytes asked and free. Zero-filled when it returns.
  PeerSegment(std::shared_ptr<SegmentTable> table, const LinkModel& links, std::vector<int> devices,
              Where where, std::string name, int64_t bytes);
  ~PeerSegment() override;

  Where where() const { return where_; }
  std::byte* part(int rank) const { return parts_[rank]; }
  std::byte* map(int from, int of) const override;

 private:
  void release();

  const std::shared_ptr<SegmentTable> table_;
  const LinkModel links_;
  const std::vector<int> devices_;  // [ranks]
  const Where where_;
  std::vector<std::byte*> parts_;  // [ranks]
};

}  // namespace braid::fabric
