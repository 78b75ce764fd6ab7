#pragma once

#include "braid/engine/runner.h"
#include "braid/engine/token_loop.h"

namespace braid {

// Samples on the host, from each step's logits.
class HostLoop : public TokenLoop {
 public:
  // `logits` [S, V] belong to the prompts' last tokens. `runner` outlives the loop.
  HostLoop(Runner& runner, LoopRequest request, const TensorView& logits);

  std::span<const SampledToken> next() override;

 private:
  SampledToken sample(size_t slot);

  Runner& runner_;
  std::vector<Sampler> samplers_;  // [S]
  Batch batch_;
  TensorView logits_;  // [S, V] of the tokens before
  bool first_ = true;
};

}  // namespace braid
