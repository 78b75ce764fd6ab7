#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "braid/fabric/allocations.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/job_error.h"
#include "braid/fabric/peer/adapter_link.h"
#include "braid/fabric/peer/nap_wait.h"
#include "braid/fabric/peer/peer_endpoint.h"
#include "braid/fabric/peer/peer_segment.h"
#include "braid/fabric/peer/staged_link.h"
#include "braid/fabric/peer/wait_report.h"

namespace braid::fabric {

struct PeerFabricConfig {
  int ranks = 1;
  std::vector<int> devices;                             // [ranks] CUDA ordinals; empty: 0, 1, ...
  Duration deadline = std::chrono::seconds(60);         // for each host wait without a deadline
  Duration device_deadline = std::chrono::seconds(10);  // of waits inside kernels
  LinkModel links;             // machines and cluster_link; no other link is emulated
  bool share_devices = false;  // several ranks may be on one GPU
};

// A world whose ranks are GPUs of a machine, each driven by a thread of this process. Symmetric
// memory is a cudaMalloc per GPU with peer access inside each (emulated) machine. Puts and gets go
// by copy engine on private streams; either end may also be host memory, and a kernel's output
// must be complete in the kernel's stream before a verb is called. Between emulated machines, puts
// and gets go through pinned host memory.
//
// The constructor refuses in one line: no GPU, fewer than ranks (unless they share), two GPUs
// without a peer path.
class PeerFabric final : public Fabric {
 public:
  static constexpr int kMaxRanks = 8;

  explicit PeerFabric(PeerFabricConfig config);
  ~PeerFabric() override;

  int world_size() const override { return config_.ranks; }
  PeerEndpoint& endpoint(int rank) override;
  // Also ends the waits of all kernels.
  void abort(int rank, std::exception_ptr error) override;
  void rethrow_error() const override;
  std::string describe() const override;

 private:
  friend class PeerEndpoint;

  template <class Ready, class Describe>
  void wait(int rank, Duration deadline, Ready&& ready, Describe&& describe);
  void check(int rank);
  // The deadline error of a kernel's wait, with the links' open requests; or nothing.
  std::string expired(int rank);
  std::shared_ptr<PeerSegment> allocate(int rank, int64_t index, int64_t bytes,
                                        PeerSegment::Where where, std::string_view name);
  // Made at first need.
  StagedLink& staged(int from, int to);
  LinkProxy& proxy(int from, int to);

  PeerFabricConfig config_;
  TagTable tags_;
  std::shared_ptr<SegmentTable> table_ = std::make_shared<SegmentTable>();
  std::shared_ptr<PeerSegment> control_;                  // [ranks] of PeerControl, device memory
  std::shared_ptr<PeerSegment> reports_;                  // [ranks] of WaitReport, pinned
  std::vector<cuda::OwnedStream> abort_streams_;          // [ranks]
  std::vector<char> reach_;                               // [ranks, ranks]: kernels see the memory
  std::vector<std::unique_ptr<PeerEndpoint>> endpoints_;  // [ranks]

  JobError error_;
  Allocations<PeerSegment> allocations_;
  std::mutex links_mutex_;
  std::vector<std::unique_ptr<StagedLink>> staged_;  // [ranks, ranks], for pairs in use
  std::vector<std::shared_ptr<LinkPort>> ports_;     // [ranks]
  std::vector<std::unique_ptr<LinkProxy>> proxies_;  // [ranks, ranks], for pairs in use
};

template <class Ready, class Describe>
void PeerFabric::wait(int rank, Duration deadline, Ready&& ready, Describe&& describe) {
  nap_wait(error_, rank, deadline > Duration::zero() ? deadline : config_.deadline, ready,
           describe);
}

// Runs fn(endpoint) on a thread per rank, with the rank's GPU current, and returns after all. The
// first error of any rank ends the job and is rethrown here.
void run_ranks(PeerFabric& fabric, const std::function<void(PeerEndpoint&)>& fn);

}  // namespace braid::fabric
