#pragma once

#include <optional>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/runner.h"
#include "braid/engine/token_loop.h"

namespace braid {

// Samples on the host, from each step's logits: with GPUs, whose host cores are idle, several
// sequences at once.
class HostLoop : public TokenLoop {
 public:
  // `logits` [S, V] belong to the prompts' last tokens. `runner` outlives the loop.
  HostLoop(Runner& runner, LoopRequest request, const TensorView& logits);

  std::span<const SampledToken> next() override;

 private:
  SampledToken sample(size_t slot);

  Runner& runner_;
  std::optional<cpu::ThreadPool> pool_;
  std::vector<Sampler> samplers_;  // [S]
  Batch batch_;
  TensorView logits_;  // [S, V] of the tokens before
  bool first_ = true;
};

}  // namespace braid
