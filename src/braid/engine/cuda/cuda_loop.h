#pragma once

#include <optional>
#include <vector>

#include "braid/engine/cuda/loop_rank.h"
#include "braid/engine/step_planner.h"
#include "braid/engine/token_loop.h"

namespace braid::cuda {

// Decodes on the device: each step samples tokens, and the next step starts from the device's
// tokens. The host reads tokens a step behind. A step is a single graph per rank. Masks of a step
// are requested while the following step runs.
class CudaLoop : public TokenLoop {
 public:
  // `ranks` are this process' ranks; a step `waits` on the device for other ranks, of any process.
  // `first` counts the samplers' steps and goes on. `planner` hears of taken pages; it and
  // `fabric` outlive the loop.
  CudaLoop(std::vector<LoopRank> ranks, const fabric::Fabric& fabric, bool waits,
           LoopRequest request, uint64_t& first, StepPlanner& planner);
  ~CudaLoop() override;

  std::span<const SampledToken> next() override;
  LoopStats stats() const override;

 private:
  struct Times {
    LoopStep host;
    OwnedEvent begin, end;  // of the first rank
  };

  void step();
  void enqueue();
  void give_masks();
  std::optional<Error> error_of(size_t slot, uint32_t status) const;
  // Pages of a slot's tokens, including the next step's token; empty if the device has the list.
  std::span<const int32_t> next_pages(size_t slot) const;
  bool grows() const;  // whether the next step needs memory for further pages
  void reserve(size_t slot);
  bool ready() const;
  CudaReplay::Hooks hooks(const LoopRank& rank) const;
  void mark(bool end);

  const std::vector<LoopRank> ranks_;
  const fabric::Fabric& fabric_;
  const bool waits_;
  StepPlanner& planner_;
  std::vector<CudaReplay::Hooks> hooks_;      // [ranks]
  std::vector<int64_t> pages_;                // [S], pages listed on the device
  std::vector<uint32_t> status_;              // [S], SampleStatus bits of the tokens read last
  std::vector<std::optional<Error>> errors_;  // [S], for sequences ended by an error
  uint64_t& step_;                            // the next step to sample
  const uint64_t first_;
  uint64_t read_;  // the next step to read
  bool masked_ = false;
  std::vector<uint32_t> all_;  // a mask with all tokens allowed; empty if no sequence has masks
  LoopStats stats_;
  double cpu_seconds_ = 0;
  OwnedEvent base_;  // at base_seconds_ of the host's clock
  double base_seconds_ = 0;
  std::vector<Times> trace_;
};

}  // namespace braid::cuda
