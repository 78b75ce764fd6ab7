#pragma once

#include <memory>
#include <vector>

#include "braid/backend/cpu/cpu_backend.h"
#include "braid/runtime/executor.h"

namespace braid {

// A Program on a rank of the CPU backend, with made-up weights, for measuring. Matrices are
// distinct memory: a run meets each matrix once. Vectors are f32 and all ones.
class TimedStep {
 public:
  // Runs on the pool's threads. `weights` holds the Program's matrices, one after the other, and
  // outlives the step.
  TimedStep(Program program, const cpu::KernelTable& table, cpu::ThreadPool& pool,
            std::span<std::byte> weights);

  const Executor& executor() const { return *executor_; }

  // Median seconds of each launch over `runs` runs; `evict` is called before each run.
  std::vector<double> run(const Extents& counts, int runs, const std::function<void()>& evict);
  // Median seconds of a run beyond its launches, in the last run().
  double overhead() const { return overhead_; }

 private:
  cpu::CpuBackend backend_;
  std::vector<std::unique_ptr<DeviceMemory>> states_;
  std::vector<std::vector<float>> norms_;
  std::unique_ptr<Executor> executor_;
  double overhead_ = 0;
};

// Bytes that TimedStep takes for weights.
int64_t timed_weight_bytes(const Program& program);

double median(std::vector<double> values);  // the lower of two middles; 0 for none

}  // namespace braid
