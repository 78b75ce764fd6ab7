#pragma once

#include <memory>
#include <span>
#include <string>

#include "braid/fabric/group.h"
#include "braid/fabric/peer/device_endpoint.h"
#include "braid/kernels/cuda/comm/device/comm_view.h"

namespace braid::cuda {

class AcrossMachines;

struct DeviceCommConfig {
  std::string name = "world";    // prefix of tags, buffers and errors
  int64_t line_bytes = 1 << 20;  // CommLimits; staging takes 6 times as much per rank of the world
  int max_ctas = 64;             // CommLimits
  fabric::Duration deadline{0};  // of each wait in a kernel; 0: the fabric's
};

// A rank's membership in a group of GPUs that reach each other's memory: staging memory, flags and
// epochs (comm_view.h has the protocol). Made collectively over the world, at a quiescent point:
// the constructor allocates, loads every kernel and waits for all ranks of the world. Launches of a
// DeviceComm run in a single order, equal on every rank; two unordered streams need a DeviceComm
// each. After an error (check) the job is over.
class DeviceComm {
 public:
  // A group on several emulated machines is `across_machines`: its kernels only signal to each
  // other, data are staged. Throws kUnsupported where two GPUs of the group cannot reach each
  // other.
  DeviceComm(fabric::DeviceEndpoint& endpoint, fabric::Group group, DeviceCommConfig config = {});
  ~DeviceComm();
  DeviceComm(const DeviceComm&) = delete;
  DeviceComm& operator=(const DeviceComm&) = delete;

  fabric::DeviceEndpoint& endpoint() const { return endpoint_; }
  const fabric::Group& group() const { return group_; }
  int size() const { return group_.size(); }
  int index() const { return index_; }  // of this rank in the group
  const CommLimits& limits() const { return limits_; }
  const std::string& name() const { return name_; }
  AcrossMachines* across() const { return across_.get(); }  // null on one machine

  // Throws kDeadline if a wait of this rank has expired, naming rank, tag, expected and seen;
  // kAborted if another rank failed. Called after a synchronization of the stream: earlier results
  // are then good.
  void check() const { endpoint_.check(); }

  // The place of `local` on rank `index` in the group; null outside symmetric memory.
  std::byte* at_peer(const void* local, int index) const;
  bool is_symmetric(const void* local) const { return endpoint_.place(local).has_value(); }

  // For launchers.
  CommView view(fabric::Tag tag) const;
  fabric::Tag tag(CollectiveOp op) const { return tags_[static_cast<int>(op)]; }
  fabric::Tag norm_tag() const { return tags_[4]; }
  fabric::Tag scatter_norm_tag() const { return tags_[5]; }
  fabric::Tag stream_tag() const { return tags_[6]; }
  void count(fabric::Tag tag, int peer, const CommVolume& volume) const;

 private:
  fabric::DeviceEndpoint& endpoint_;
  const fabric::Group group_;
  const int index_;
  const std::string name_;
  CommLimits limits_;
  fabric::Tag tags_[7];
  fabric::SymBuf<std::byte> staging_;     // [2, P, line slot], [2, P, half a line slot]
  fabric::SymBuf<CommControl> control_;   // [1]
  fabric::SymBuf<fabric::Signal> ready_;  // [world]
  CommView view_;
  std::unique_ptr<AcrossMachines> across_;
};

// Loads every kernel of this folder on the current device: no launch then loads a kernel while
// another rank spins. DeviceComm calls load_kernels.
void load_kernels();

}  // namespace braid::cuda
