#pragma once

#include <optional>

#include "braid/engine/forward_plans.h"

namespace braid {

// How ranks divide the tokens of a sequence, each with whole weights.
struct SequenceParallel {
  std::optional<SpMode> mode;  // none: for each prompt the fastest in simulation
  SpRequest degrees;
  // On GPUs: each keeps its own keys alone, by keys_apart or for want of room for all.
  bool apart = false;
  // For a rank's activations in a step, as planned; 0: any. On GPUs StepMemory says both for a
  // run's cache, and for a server's pool of pages.
  int64_t step_bytes = 0;
};

// The meshes over a topology's ranks: the mode's, or without a mode the legal ones of all modes
// with the pinned degrees, each division once. Fails with kInvalidArgument and the reason if no
// mesh is legal.
std::vector<SequenceMesh> meshes_of(const SequenceParallel& sp, const Topology& topology,
                                    int64_t q_heads);

// Simulated seconds of a step with `tokens` tokens in a sequence behind `cached` others.
double prompt_seconds(const Plan& plan, int64_t tokens, int64_t cached, const CostModel& cost);

}  // namespace braid
