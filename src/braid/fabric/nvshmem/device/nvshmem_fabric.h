#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/job_error.h"
#include "braid/fabric/nvshmem/device/nvshmem_endpoint.h"
#include "braid/fabric/nvshmem/device/nvshmem_heap.h"
#include "braid/fabric/peer/wait_report.h"

namespace braid::fabric {

struct NvshmemFabricConfig {
  int device = 0;  // this process' GPU, a CUDA ordinal
  Duration deadline = std::chrono::seconds(60);
  Duration device_deadline = std::chrono::seconds(10);  // of waits inside kernels
  NvshmemMeeting meeting;
};

// A world with a process for each GPU of a machine. Data lies in NVSHMEM's heap, where each GPU
// reaches the parts of all others: kernels run on mapped pointers as over PeerFabric, puts and gets
// go by copy engine. Signals between hosts, and errors, go by the fabric of the job's hosts.
// Allocations are collective and wait for all processes.
class NvshmemFabric final : public Fabric {
 public:
  // `hosts`: the same world with a rank in each process, of a single machine.
  NvshmemFabric(NvshmemFabricConfig config, std::unique_ptr<Fabric> hosts);
  ~NvshmemFabric() override;

  int world_size() const override { return hosts_->world_size(); }
  int first_rank() const override { return hosts_->first_rank(); }
  int ranks_here() const override { return 1; }
  NvshmemEndpoint& endpoint(int rank) override;
  // Also ends the waits of this process' kernels; the other processes end their own.
  void abort(int rank, std::exception_ptr error) override;
  void rethrow_error() const override { hosts_->rethrow_error(); }
  std::string describe() const override;

 private:
  friend class NvshmemEndpoint;

  std::shared_ptr<NvshmemSegment> allocate(int64_t bytes, std::string_view name);
  void end_kernels();
  void watch();  // the watching thread: an error of either side becomes the other's

  const NvshmemFabricConfig config_;
  const std::unique_ptr<Fabric> hosts_;
  NvshmemHeap& heap_;
  const std::shared_ptr<NvshmemTable> table_ = std::make_shared<NvshmemTable>();
  TagTable tags_;
  JobError error_;                           // the job's, as far as it is known here
  std::shared_ptr<NvshmemSegment> control_;  // PeerControl of each rank
  WaitReport* report_ = nullptr;             // pinned
  cuda::OwnedStream abort_stream_;
  std::unique_ptr<NvshmemEndpoint> endpoint_;
  std::atomic<bool> stop_{false};
  std::thread watcher_;
};

}  // namespace braid::fabric
