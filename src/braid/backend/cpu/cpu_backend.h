#pragma once

#include "braid/backend/backend.h"
#include "braid/backend/cpu/cpu_replay.h"
#include "braid/backend/cpu/kernel_table.h"
#include "braid/backend/cpu/stream_thread.h"
#include "braid/backend/cpu/thread_pool.h"

namespace braid::cpu {

// A rank's CPU. The compute stream is a team of threads that walks the launches together, with a
// barrier between launches; each other stream is a thread, created for the first Schedule with that
// stream. Streams wait for each other's launches through counters. The table and the pool outlive
// the backend and its bound launches.
class CpuBackend : public Backend {
 public:
  CpuBackend(const KernelTable& table, ThreadPool& pool, OnError on_error = {})
      : table_(table), pool_(pool), on_error_(std::move(on_error)) {}

  const KernelCatalog& catalog() const override { return table_; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  std::unique_ptr<Replay> bind(BoundStep step) override;

 private:
  const KernelTable& table_;
  ThreadPool& pool_;
  const OnError on_error_;
  PerStream<std::unique_ptr<StreamThread>> threads_;
};

}  // namespace braid::cpu
