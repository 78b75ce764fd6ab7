#pragma once

#include <optional>
#include <vector>

#include "braid/backend/cuda/cuda_replay.h"
#include "braid/engine/cuda/device_sampler.h"
#include "braid/engine/rank.h"
#include "braid/engine/step_planner.h"
#include "braid/engine/token_loop.h"
#include "braid/runtime/executor.h"

namespace braid::cuda {

// What one rank brings to a loop.
struct LoopRank {
  Rank* rank = nullptr;
  CudaBackend* backend = nullptr;
  DeviceSampler* sampler = nullptr;
  Executor* prompt = nullptr;  // has computed the logits of the prompts' last tokens
  Executor* step = nullptr;    // one token of each sequence; its inputs are written, for the first
                               // tokens after the prompts
};

// Decodes on the device: each step samples its tokens, and the next starts from them without the
// host, which reads one step behind. A step is one graph a rank. The masks of a step are asked for
// once the step after it is on its way, while it runs.
class CudaLoop : public TokenLoop {
 public:
  // `ranks` are those of this process; a step `waits` for other ranks, of any process, on the
  // device. `first` is the samplers' next step; it is counted on. `planner` is told of pages that
  // are taken, and outlives the loop.
  CudaLoop(std::vector<LoopRank> ranks, bool waits, LoopRequest request, uint64_t& first,
           StepPlanner& planner);
  ~CudaLoop() override;

  std::span<const SampledToken> next() override;
  LoopStats stats() const override;

 private:
  struct Times {
    LoopStep host;
    OwnedEvent begin, end;  // of the first rank
  };

  void enqueue();
  void give_masks();
  std::optional<Error> error_of(size_t slot, uint32_t status) const;
  // Pages that hold a slot's tokens with the one that the next step computes; empty where the
  // device knows them.
  std::span<const int32_t> next_pages(size_t slot) const;
  bool grows() const;  // the next step's pages take memory
  void reserve(size_t slot);
  bool ready() const;
  CudaReplay::Hooks hooks(const LoopRank& rank) const;
  void mark(bool end);

  const std::vector<LoopRank> ranks_;
  const bool waits_;
  StepPlanner& planner_;
  std::vector<CudaReplay::Hooks> hooks_;      // [ranks]
  std::vector<int64_t> pages_;                // [S], that the device knows
  std::vector<uint32_t> status_;              // [S], of the tokens read last: SampleStatus bits
  std::vector<std::optional<Error>> errors_;  // [S], of sequences that have ended by one
  uint64_t& step_;                            // of the next token that is sampled
  const uint64_t first_;
  uint64_t read_;  // of the next token that is read
  bool masked_ = false;
  std::vector<uint32_t> all_;  // a mask that allows all, where there are masks
  LoopStats stats_;
  double cpu_seconds_ = 0;
  OwnedEvent base_;  // at base_seconds_ of the host's clock
  double base_seconds_ = 0;
  std::vector<Times> trace_;
};

}  // namespace braid::cuda
