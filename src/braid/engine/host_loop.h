#pragma once

#include "braid/engine/runner.h"
#include "braid/engine/token_loop.h"

namespace braid {

// Samples on the host, from logits that each step brings there.
class HostLoop : public TokenLoop {
 public:
  // `logits` [S, V] are those of the prompts' last tokens.
  HostLoop(Runner& runner, LoopRequest request, int64_t page_size, const TensorView& logits);

  std::span<const SampledToken> next() override;

 private:
  SampledToken sample(size_t sequence);

  Runner& runner_;
  const LoopRequest request_;
  std::vector<Sampler> samplers_;                // [S]
  std::vector<std::vector<int32_t>> generated_;  // [S]
  std::vector<SampledToken> tokens_;             // [S]
  Batch batch_;
  TensorView logits_;
};

}  // namespace braid
