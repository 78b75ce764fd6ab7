#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "braid/backend/cuda/cuda_replay.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/cuda/slot_sampler.h"
#include "braid/engine/requests/step_queue.h"
#include "braid/engine/requests/step_sizes.h"
#include "braid/engine/step_planner.h"

namespace braid::cuda {

// A rank's part of a queue.
struct QueueRank {
  CudaBackend* backend = nullptr;
  std::unique_ptr<SlotSampler> sampler;
};

// Steps on GPUs, two of which may be under way. While a step runs, the host writes the next step,
// which begins with the tokens that the running step samples. A step is a graph on each rank;
// graphs are made with the queue, and a step takes the smallest that holds it. A batch without a
// size, a prompt with thinned keys, is planned as it comes.
class CudaStepQueue : public StepQueue {
 public:
  // Plans and captures the sizes that the options can need, as many as options.graph_bytes hold and
  // at least two, and runs each once. `planner` outlives the queue.
  CudaStepQueue(std::vector<QueueRank> ranks, const StepQueueOptions& options,
                StepPlanner& planner);
  ~CudaStepQueue() override;

  int depth() const override { return 2; }
  int64_t slots() const override { return slots_; }
  bool join(int32_t slot, const SlotSequence& sequence) override;
  void leave(int32_t slot) override;
  void allow(int32_t slot, std::span<const uint32_t> mask) override;
  void put(const Batch& batch, std::span<const int32_t> row_slots) override;
  bool usable() const override { return planning_; }  // a refused plan ends no other step
  std::optional<Approximation> approximation() const override { return planner_.approximation(); }
  std::optional<Approximation> last_approximation() const override { return left_out_; }
  EndedStep take() override;
  TensorView logits() override;
  TensorView device_logits() override;
  int64_t late_preparations() const override { return preparations() - made_; }

 private:
  struct Planned {
    std::shared_ptr<BoundForward> bound;
    std::vector<CudaReplay::Hooks> hooks;  // [ranks]
  };
  struct UnderWay {
    std::vector<int32_t> row_slots;
    std::shared_ptr<BoundForward> bound;
    double begin = 0;
    bool masked = false;
  };

  void make_plans(const StepQueueOptions& options);
  void try_plans();
  Planned planned(std::shared_ptr<BoundForward> bound) const;
  int64_t preparations() const;
  void put(const Planned& plan, const Batch& batch, std::span<const int32_t> row_slots);
  // `begin`: when the host began with the step.
  void put(const Planned& plan, const PlannedStep& step, std::span<const int32_t> row_slots,
           double begin);

  const std::vector<QueueRank> ranks_;
  StepPlanner& planner_;
  const int64_t slots_;
  std::vector<StepSize> sizes_;  // of plans_
  std::vector<Planned> plans_;
  BatchCut cut_;
  bool planning_ = false;                  // a batch without a size
  std::optional<Approximation> left_out_;  // of the step put in last
  std::unique_ptr<DeviceMemory> logits_;   // pinned f32 [R, V]
  std::deque<UnderWay> under_way_;
  std::vector<SlotToken> tokens_;  // of the step taken last
  std::vector<SlotToken> others_;  // likewise, of another rank
  std::vector<bool> masked_;       // [slots]: the next step has a mask
  UnderWay taken_;                 // likewise
  uint64_t put_ = 0, took_ = 0;    // steps so far
  double ended_ = 0;               // when the step taken last ended, seconds
  double waited_ = 0;              // in put(), since the last take()
  int64_t made_ = 0;               // preparations before the first request
};

}  // namespace braid::cuda
