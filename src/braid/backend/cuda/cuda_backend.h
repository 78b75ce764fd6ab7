#pragma once

#include <atomic>
#include <functional>

#include "braid/backend/backend.h"
#include "braid/backend/cuda/handles.h"
#include "braid/backend/cuda/kernel_table.h"
#include "braid/backend/cuda/sm_partition.h"

namespace braid::cuda {

// Looks while the host waits for the device: throws when the job has failed elsewhere.
using Watch = std::function<void()>;

// A GPU of this process as a rank's backend: memory, streams, and Schedules that become graphs. One
// thread at a time. The table outlives the backend, and the backend outlives its bound steps.
class CudaBackend : public Backend {
 public:
  // Kernels run on the SMs of `part`, if given, which outlives the backend.
  explicit CudaBackend(const KernelTable& table, Watch watch = {},
                       const SmPartition* part = nullptr);

  const KernelCatalog& catalog() const override { return table_; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  std::unique_ptr<DeviceMemory> allocate_staging(int64_t bytes) override;
  void read(std::byte* host, const std::byte* device, int64_t bytes) override;
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  std::unique_ptr<Replay> bind(BoundStep step) override;

  const DeviceInfo& device() const { return table_.device(); }
  const KernelTable& table() const { return table_; }
  cudaStream_t stream(Stream stream) const { return streams_[stream].get(); }

  // Allocations, bound steps and graphs so far: work that may take long and wait for other ranks.
  int64_t preparations() const { return preparations_; }
  void count_preparation() { ++preparations_; }

  // Waits for `event`, and throws the device's error, if any. Fails with kDeadline after
  // `kDeadline`.
  void wait(cudaEvent_t event) const;
  // Throws a reported error of the device or the job, without waiting.
  void check() const;
  void check_job() const;  // the job's check alone: no call into the driver
  static constexpr double kDeadlineSeconds = 120;

 private:
  void transfer(std::byte* to, const std::byte* from, int64_t bytes, cudaMemcpyKind kind);

  const KernelTable& table_;
  const Watch watch_;
  PerStream<OwnedStream> streams_;
  OwnedEvent read_;
  std::atomic<int64_t> preparations_ = 0;  // allocate() is called by several threads
};

}  // namespace braid::cuda
