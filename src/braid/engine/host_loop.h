#pragma once

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/runner.h"
#include "braid/engine/token_loop.h"

namespace braid {

// Samples on the host, from each step's logits.
class HostLoop : public TokenLoop {
 public:
  // `logits` [S, V] belong to the prompts' last tokens. `pool` samples several sequences at once;
  // null: the calling thread samples all. `runner` and `pool` outlive the loop.
  HostLoop(Runner& runner, LoopRequest request, const TensorView& logits,
           cpu::ThreadPool* pool = nullptr);

  // For loops beside a GPU, where the host's cores are idle.
  static std::unique_ptr<cpu::ThreadPool> make_pool();

  std::span<const SampledToken> next() override;

 private:
  SampledToken sample(size_t slot);

  Runner& runner_;
  cpu::ThreadPool* const pool_;
  std::vector<Sampler> samplers_;  // [S]
  Batch batch_;
  TensorView logits_;  // [S, V] of the tokens before
  bool first_ = true;
};

}  // namespace braid
