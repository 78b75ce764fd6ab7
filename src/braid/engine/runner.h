#pragma once

#include <memory>

#include "braid/engine/batch.h"
#include "braid/model/model.h"

namespace braid {

struct RunnerConfig {
  int tp = 1;       // ranks of tensor parallelism
  int threads = 1;  // of each rank
  int64_t pages = 0;
  int64_t page_size = 64;
  int64_t pages_per_sequence = 0;
  DType kv_dtype = DType::f16;
  int64_t deadline_ms = 60000;  // of a wait for another rank
};

// Runs forward passes of one model on all ranks of this process. A batch's sizes are rounded up to
// a capacity; the Program, its lowering and its Schedule are made once per capacity and cached.
class Runner {
 public:
  // Fails with kInvalidArgument where the model does not divide over `tp` ranks, saying how far it
  // does. `model` outlives the runner.
  Runner(const Model& model, const RunnerConfig& config);
  ~Runner();

  // Computes the batch and returns its logits f32 [R, V], valid until the next call. The first
  // error of any rank is rethrown and ends the runner: later calls rethrow it.
  TensorView run(const Batch& batch);

  // What one rank runs for batches of these sizes; rank 0 for people to look at.
  const Executor& executor(const Extents& sizes, int rank = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
