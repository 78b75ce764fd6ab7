#pragma once

#include <memory>
#include <vector>

#include "braid/engine/cuda/loop_rank.h"
#include "braid/engine/forward_plans.h"
#include "braid/engine/step_planner.h"
#include "braid/engine/token_loop.h"

namespace braid::cuda {

// Decodes with steps whose inputs the host writes, as ranks with keys apart need, and whose tokens
// are sampled on the device: while a step runs, the host plans and puts in the next one, which
// begins with the tokens of the running step. The host reads tokens a step behind.
class PlannedLoop : public TokenLoop {
 public:
  // `ranks` are all ranks. Without a prompt of its own a rank gets rank 0's logits. No sequence has
  // a mask. `first` counts the samplers' steps and goes on. `fabric` and `planner` outlive the
  // loop.
  PlannedLoop(std::vector<LoopRank> ranks, const fabric::Fabric& fabric, LoopRequest request,
              uint64_t& first, StepPlanner& planner);
  ~PlannedLoop() override;

  std::span<const SampledToken> next() override;
  LoopStats stats() const override;

 private:
  void step();
  void put();
  PlannedStep plan();
  void use(const std::shared_ptr<BoundForward>& bound);

  const std::vector<LoopRank> ranks_;
  const fabric::Fabric& fabric_;
  StepPlanner& planner_;
  Batch batch_;
  std::shared_ptr<BoundForward> bound_,
      before_;                            // the newest step's plan; an older step's may still run
  std::vector<CudaReplay::Hooks> hooks_;  // [ranks] of bound_
  std::vector<std::unique_ptr<DeviceMemory>> logits_;  // copies of rank 0's
  std::vector<uint32_t> status_;  // [S], SampleStatus bits of the tokens read last
  uint64_t& step_;                // the next step to sample
  const uint64_t first_;
  uint64_t read_;  // the next step to read
  LoopStats stats_;
  double cpu_seconds_ = 0;
};

}  // namespace braid::cuda
