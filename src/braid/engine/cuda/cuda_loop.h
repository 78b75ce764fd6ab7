#pragma once

#include <vector>

#include "braid/backend/cuda/cuda_replay.h"
#include "braid/engine/cuda/device_sampler.h"
#include "braid/engine/token_loop.h"
#include "braid/runtime/executor.h"

namespace braid::cuda {

// What one rank brings to a loop.
struct LoopRank {
  CudaBackend* backend = nullptr;
  DeviceSampler* sampler = nullptr;
  Executor* prompt = nullptr;  // has computed the logits of the prompt's last token
  Executor* step = nullptr;    // one token of one sequence; its inputs are written, for the first
                               // token after the prompt
};

// Decodes on the device: each step samples its token, and the next starts from it without the host,
// which reads one step behind. A step is one graph a rank.
class CudaLoop : public TokenLoop {
 public:
  // `first` is the samplers' next step; it is counted on.
  CudaLoop(std::vector<LoopRank> ranks, LoopRequest request, uint64_t& first, int64_t page_size);
  ~CudaLoop() override;

  SampledToken next() override;

 private:
  void enqueue();
  void reserve(int64_t tokens);
  CudaReplay::Hooks hooks(const LoopRank& rank) const;

  const std::vector<LoopRank> ranks_;
  const LoopRequest request_;
  const int64_t page_size_;
  std::vector<CudaReplay::Hooks> hooks_;  // [ranks]
  uint64_t& step_;                        // of the next token that is sampled
  const uint64_t first_;
  uint64_t read_;  // of the next token that is read
  int64_t pages_ = 0;
};

}  // namespace braid::cuda
