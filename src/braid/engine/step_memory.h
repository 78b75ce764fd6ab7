#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "braid/engine/context_fit.h"
#include "braid/engine/generate.h"

namespace braid {

// What the memory of an engine's GPUs has room for: keys, beside a prompt's step. Keeps references.
class StepMemory {
 public:
  StepMemory(const EngineConfig& config, const Model& model) : config_(config), model_(model) {}

  // Tokens of a prompt in a step: the most with which all keys of `context` fit, else the least. On
  // CPUs the most.
  int64_t step_of_prompt(int64_t context);
  // Writes into `sp` what a cache of `slots` tokens, of all sequences, leaves on the GPUs: whether
  // each rank keeps its own keys alone, and a rank's bytes for activations.
  void bound(SequenceParallel& sp, int64_t slots);
  // The tokens, at most `most`, with keys that fit on each GPU beside a step of the prefill chunk,
  // and those that fit on all ranks together.
  int64_t tokens_on_each(int64_t most);
  int64_t tokens_on_all(int64_t most);

 private:
  // Each GPU of this process, with `step` bytes of a rank's step.
  std::vector<ContextRoom> rooms(int64_t step) const;
  // Of a rank's step where ranks divide prompts; 0: unknown. A size is planned once, in all modes.
  int64_t activations(int64_t tokens);

  const EngineConfig& config_;
  const Model& model_;
  std::map<int64_t, int64_t> planned_;  // bytes by tokens
};

}  // namespace braid
