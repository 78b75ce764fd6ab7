#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/peer/link_proxy.h"
#include "braid/fabric/peer/peer_segment.h"
#include "braid/fabric/peer/wait_report.h"

namespace braid::fabric {

class PeerFabric;

// A rank of a PeerFabric. The rank's threads may share it.
class PeerEndpoint final : public Endpoint {
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

  int device() const { return device_; }
  bool shares_gpu() const;
  // The symmetric place of an address in this rank's memory, if a segment of the world holds it.
  std::optional<SymPtr<std::byte>> place(const void* address) const;
  // Address at which this rank's kernels reach a peer's copy of a local symmetric address, for
  // signal words: also across emulated machines, whose data goes by transfers. Null without a path,
  // or for an address outside symmetric memory.
  std::byte* reach(const void* local, int peer) const;
  // A transfer between this rank and a peer, to be asked for by this rank's streams, kernels or
  // host when it is due: its own data out, or the peer's in.
  std::unique_ptr<LinkProxy::Job> make_transfer(int peer, bool put);
  // Words for the kernels' waits; device and pinned memory of the fabric.
  PeerControl* control(int rank) const;
  WaitReport* report() const;
  Duration device_deadline() const;

 private:
  struct Peer {
    LinkClass link;
    cuda::OwnedStream puts, gets;       // made at first need
    std::atomic<bool> has_puts{false};  // perhaps not complete
  };
  class Pending;
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
