#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/nvshmem/device/nvshmem_segment.h"
#include "braid/fabric/peer/device_endpoint.h"
#include "braid/fabric/peer/direct_link.h"

namespace braid::fabric {

class NvshmemFabric;

// This process' rank in a NvshmemFabric. The rank's threads may share it, but for
// allocations.
class NvshmemEndpoint final : public DeviceEndpoint {
 public:
  NvshmemEndpoint(NvshmemFabric& fabric, Endpoint& host);
  ~NvshmemEndpoint() override;

  int rank() const override { return host_.rank(); }
  int world_size() const override { return host_.world_size(); }
  LinkClass link(int from, int to) const override { return host_.link(from, to); }
  Link speed(int, int) const override { return {}; }  // nothing is emulated
  Tag tag(std::string_view name) override;
  Transfer put_async(SymPtr<std::byte> dst, int peer, const void* src, const Block& block,
                     Tag tag) override;
  Transfer get_async(void* dst, SymPtr<std::byte> src, int peer, const Block& block,
                     Tag tag) override;
  // Waits for this rank's puts to the peer, if any are under way.
  void signal(SymPtr<Signal> slot, int peer, SignalOp op, uint64_t value, Tag tag) override;
  void wait(SymPtr<Signal> slot, uint64_t value, const WaitFor& what) override;
  uint64_t peek(SymPtr<Signal> slot) const override;
  // Throws kDeadline if a wait inside a kernel of this rank has expired, kAborted if another rank
  // failed.
  void check() const override;
  TrafficCounters& traffic() override { return host_.traffic(); }

  std::optional<SymPtr<std::byte>> place(const void* address) const override;
  std::byte* reach(const void* local, int peer) const override;
  std::unique_ptr<LinkProxy::Job> make_transfer(int peer, bool put) override;
  std::byte* transfer_end(SymPtr<std::byte> at, int peer) const override;

 private:
  struct Peer {
    cuda::OwnedStream puts, gets;       // made at first need
    std::atomic<bool> has_puts{false};  // perhaps not complete
  };

  std::shared_ptr<Segment> allocate_bytes(int64_t count, int64_t elem_bytes,
                                          std::string_view name) override;
  std::byte* checked(SymPtr<std::byte> at, int peer, const Block& block, int64_t stride) const;
  void check_signal(SymPtr<Signal> slot, int peer) const;
  Transfer copy(std::byte* dst, const std::byte* src, int peer, const Block& block, Verb verb,
                Tag tag);

  NvshmemFabric& fabric_;
  Endpoint& host_;
  std::vector<std::unique_ptr<Peer>> peers_;  // [world]
  std::mutex mutex_;                          // guards the making of streams and the proxy
  std::unique_ptr<DirectLink> proxy_;         // copies for make_transfer()
};

}  // namespace braid::fabric
