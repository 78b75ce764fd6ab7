#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/peer/device_endpoint.h"
#include "braid/fabric/peer/peer_segment.h"

namespace braid::fabric {

class PeerFabric;

// A rank in a PeerFabric. The rank's threads may share it.
class PeerEndpoint final : public DeviceEndpoint {
 public:
  PeerEndpoint(PeerFabric& fabric, int rank);
  ~PeerEndpoint() override;

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
  // Throws kDeadline if a wait inside a kernel of this rank has expired, kAborted if another rank
  // failed.
  void check() const override;
  TrafficCounters& traffic() override { return counters_; }

  std::optional<SymPtr<std::byte>> place(const void* address) const override;
  std::byte* reach(const void* local, int peer) const override;
  std::unique_ptr<LinkProxy::Job> make_transfer(int peer, bool put) override;
  std::byte* transfer_end(SymPtr<std::byte> at, int peer) const override;

 private:
  struct Peer {
    LinkClass link;
    cuda::OwnedStream puts, gets;       // made at first need
    std::atomic<bool> has_puts{false};  // perhaps not complete
  };
  cudaStream_t made(cuda::OwnedStream& stream);

  std::shared_ptr<Segment> allocate_bytes(int64_t count, int64_t elem_bytes,
                                          std::string_view name) override;
  template <class T>
  PeerSegment& checked(SymPtr<T> at, int peer, const Block& block, int64_t stride) const;
  std::atomic_ref<uint64_t> counter(SymPtr<Signal> slot, int rank) const;
  Transfer pending(int device, cudaStream_t stream, bool put, int peer, int64_t bytes, Tag tag);

  PeerFabric& fabric_;
  const int rank_;
  const int device_;
  std::vector<std::unique_ptr<Peer>> peers_;  // [world]
  std::mutex streams_mutex_;                  // guards their making
  TrafficCounters counters_;
  int64_t next_allocation_ = 0;
};

}  // namespace braid::fabric
