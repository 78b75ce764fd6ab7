#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "braid/fabric/local/link_engine.h"
#include "braid/fabric/local/local_segment.h"

namespace braid::fabric {

class LocalFabric;

// A rank of a LocalFabric: verbs by plain copies and stores, or through the LinkEngine.
class LocalEndpoint final : public Endpoint {
 public:
  LocalEndpoint(LocalFabric& fabric, int rank);

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(peers_.size()); }
  LinkClass link(int from, int to) const override;
  Link speed(int from, int to) const override;
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
  struct Peer {
    LinkClass link;
    bool emulated;
  };
  class Pending;

  std::shared_ptr<Segment> allocate_bytes(int64_t count, int64_t elem_bytes,
                                          std::string_view name) override;
  Transfer start(LinkEngine::Job::Kind kind, int from, int to, std::byte* dst, const std::byte* src,
                 const Block& block, LocalSegment& segment, Tag tag);
  // The segment, once peer and range are known to be in it.
  template <class T>
  LocalSegment& checked(SymPtr<T> at, int peer, const Block& block, int64_t stride) const;
  std::atomic_ref<uint64_t> counter(SymPtr<Signal> slot) const;

  LocalFabric& fabric_;
  const int rank_;
  std::vector<Peer> peers_;  // [world]
  TrafficCounters counters_;
  int64_t next_allocation_ = 0;
};

}  // namespace braid::fabric
