#include "braid/fabric/nvshmem/device/nvshmem_fabric.h"

#include <cstddef>
#include <utility>

#include "braid/backend/cuda/device.h"
#include "braid/base/error.h"

namespace braid::fabric {

NvshmemFabric::NvshmemFabric(NvshmemFabricConfig config, std::unique_ptr<Fabric> hosts)
    : config_(std::move(config)),
      hosts_(std::move(hosts)),
      heap_(nvshmem_heap(config_.meeting, config_.device)) {
  if (hosts_->ranks_here() != 1) {
    fail(ErrorCode::kInvalidArgument, "{} ranks in a process: a process of a job has a single GPU",
         hosts_->ranks_here());
  }
  const cuda::DeviceScope scope(config_.device);
  abort_stream_ = cuda::make_stream();
  control_ = allocate(sizeof(PeerControl), "fabric/control");
  void* report = nullptr;
  cuda::check_cuda(cudaHostAlloc(&report, sizeof(WaitReport), cudaHostAllocMapped),
                   "pinned memory of a report");
  report_ = new (report) WaitReport();
  endpoint_ = std::make_unique<NvshmemEndpoint>(*this, hosts_->endpoint(first_rank()));
  watcher_ = std::thread([this] { watch(); });
}

NvshmemFabric::~NvshmemFabric() {
  stop_ = true;
  watcher_.join();
  endpoint_.reset();
  cudaFreeHost(report_);
}

NvshmemEndpoint& NvshmemFabric::endpoint(int rank) {
  BRAID_CHECK(rank == first_rank(), "rank {} in the process of rank {}", rank, first_rank());
  return *endpoint_;
}

std::string NvshmemFabric::describe() const {
  return fmt::format("NVSHMEM {} fabric, {} ranks with a process and a GPU each, here cuda:{}",
                     heap_.version(), world_size(), config_.device);
}

std::shared_ptr<NvshmemSegment> NvshmemFabric::allocate(int64_t bytes, std::string_view name) {
  return std::make_shared<NvshmemSegment>(
      heap_, table_, heap_.allocate(config_.meeting, bytes, name), std::string(name), bytes);
}

void NvshmemFabric::end_kernels() {
  static const uint32_t kAborted = 1;
  // A lost device can take no word; its kernels wait no more either.
  cudaMemcpyAsync(control_->part(first_rank()) + offsetof(PeerControl, aborted), &kAborted,
                  sizeof(kAborted), cudaMemcpyDefault, abort_stream_.get());
}

void NvshmemFabric::abort(int rank, std::exception_ptr error) {
  error_.set(rank, error);
  hosts_->abort(rank, error);
  end_kernels();
}

void NvshmemFabric::watch() {
  const int rank = first_rank();
  while (!stop_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    try {
      error_.rethrow();
      hosts_->endpoint(rank).check();
    } catch (...) {
      return abort(rank, std::current_exception());  // the job keeps the first
    }
  }
}

}  // namespace braid::fabric
