#pragma once

#include <map>
#include <memory>
#include <string>

#include "braid/backend/cpu/cpu_backend.h"
#include "braid/fabric/comm.h"
#include "braid/model/model.h"
#include "braid/parallel/lowering.h"
#include "braid/runtime/executor.h"

namespace braid {

// What one rank has of its own: threads, kernels, its share of the KV cache.
class Rank {
 public:
  // `threads` run the compute stream; `total_threads` of all ranks share the cores. The fabric is
  // that of the endpoint: an error of this rank ends the job at once.
  Rank(const Model& model, fabric::Fabric& fabric, int rank, int threads, int total_threads);

  const KernelCatalog& catalog() const { return table_; }
  // Binds a rank's Program and Schedule to its weights, states and threads.
  std::unique_ptr<Executor> bind(const RankProgram& lowered, Program fused, Schedule schedule);

 private:
  TensorView state(const Value& value);

  const Model& model_;
  const int rank_;
  cpu::ThreadPool pool_;
  cpu::KernelTable table_;
  std::array<std::unique_ptr<fabric::Comm>, kNumStreams> comms_;
  cpu::CpuBackend backend_;
  std::map<std::string, std::unique_ptr<DeviceMemory>> states_;
};

}  // namespace braid
