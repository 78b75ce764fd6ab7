#pragma once

#include "braid/backend/backend.h"
#include "braid/backend/cpu/kernel_table.h"
#include "braid/backend/cpu/thread_pool.h"

namespace braid::cpu {

// One rank's CPU: a team of threads that walks the launches of a step together, with a barrier
// between one launch and the next. The table and the pool outlive the backend and what it bound.
class CpuBackend : public Backend {
 public:
  CpuBackend(const KernelTable& table, ThreadPool& pool) : table_(table), pool_(pool) {}

  const KernelCatalog& catalog() const override { return table_; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  std::unique_ptr<Replay> bind(std::vector<BoundOp> launches) override;

 private:
  const KernelTable& table_;
  ThreadPool& pool_;
};

}  // namespace braid::cpu
