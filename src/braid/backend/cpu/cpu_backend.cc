#include "braid/backend/cpu/cpu_backend.h"

#include <sys/mman.h>

#include "braid/base/math.h"

namespace braid::cpu {
namespace {

class HostMemory : public DeviceMemory {
 public:
  explicit HostMemory(int64_t bytes) : bytes_(std::max<int64_t>(bytes, 1)) {
    data_ = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) {
      fail(ErrorCode::kResource, "out of memory: {} bytes asked for", bytes_);
    }
  }
  ~HostMemory() override { munmap(data_, static_cast<size_t>(bytes_)); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  std::byte* data() override { return static_cast<std::byte*>(data_); }
  int64_t bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
  void* data_;
};

class CpuReplay : public Replay {
 public:
  CpuReplay(std::vector<BoundOp> launches, const KernelTable& table, ThreadPool& pool)
      : launches_(std::move(launches)), pool_(pool) {
    calls_.reserve(launches_.size());  // bound kernels keep references into it
    for (const BoundOp& launch : launches_) {
      calls_.push_back({launch.op, launch.in, launch.out, launch.axis, &extents_});
      kernels_.push_back(
          table.at(launch.op->def->kind).bind({calls_.back(), launch.workspace, table.threads()}));
    }
  }

  void run(const Extents& extents) override {
    extents_ = extents;
    pool_.run([this](const Team& team) {
      for (const BoundKernel& kernel : kernels_) {
        kernel(team);
        team.barrier();
      }
    });
  }

 private:
  std::vector<BoundOp> launches_;
  std::vector<OpCall> calls_;
  std::vector<BoundKernel> kernels_;
  Extents extents_;
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<DeviceMemory> CpuBackend::allocate(int64_t bytes) {
  return std::make_unique<HostMemory>(bytes);
}

std::unique_ptr<Replay> CpuBackend::bind(std::vector<BoundOp> launches) {
  return std::make_unique<CpuReplay>(std::move(launches), table_, pool_);
}

}  // namespace braid::cpu
