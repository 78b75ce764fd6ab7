#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "braid/fabric/fabric.h"
#include "braid/fabric/ucx/ucx_segment.h"

namespace braid::fabric {

class UcxFabric;
struct UcxHeader;

// A rank of this process in a UcxFabric.
class UcxEndpoint final : public Endpoint {
 public:
  UcxEndpoint(UcxFabric& fabric, int rank);

  int rank() const override { return rank_; }
  int world_size() const override;
  LinkClass link(int from, int to) const override;
  Link speed(int, int) const override { return {}; }  // nothing is emulated
  Tag tag(std::string_view name) override;
  Transfer put_async(SymPtr<std::byte> dst, int peer, const void* src, const Block& block,
                     Tag tag) override;
  Transfer get_async(void* dst, SymPtr<std::byte> src, int peer, const Block& block,
                     Tag tag) override;
  void signal(SymPtr<Signal> slot, int peer, SignalOp op, uint64_t value, Tag tag) override;
  void wait(SymPtr<Signal> slot, uint64_t value, const WaitFor& what) override;
  uint64_t peek(SymPtr<Signal> slot) const override;
  void check() const override;
  TrafficCounters& traffic() override { return counters_; }

 private:
  class Pending;
  class PendingPut;
  class PendingGet;

  std::shared_ptr<Segment> allocate_bytes(int64_t count, int64_t elem_bytes,
                                          std::string_view name) override;
  UcxSegment& checked(SymPtr<std::byte> at, int peer, const Block& block, int64_t stride) const;
  std::atomic_ref<uint64_t> counter(SymPtr<Signal> slot) const;
  UcxHeader header(const UcxSegment& segment, int64_t offset, int peer) const;

  UcxFabric& fabric_;
  const int rank_;
  TrafficCounters counters_;
  int64_t next_allocation_ = 0;
};

}  // namespace braid::fabric
