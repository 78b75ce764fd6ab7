#pragma once

#include <optional>

#include "braid/engine/forward_plans.h"

namespace braid {

// How ranks divide the tokens of a sequence, each with whole weights.
struct SequenceParallel {
  std::optional<SpMode> mode;  // none: the one that a simulation finds fastest
  SpRequest degrees;
  int64_t tokens = 0;  // of the prompts that it is to be fastest for; 0: as many as the cache holds
};

// The mesh that this asks for over the ranks of a topology. Without a mode, a forward pass of
// `model` over one prompt is planned for every mode and all degrees that are legal with those
// pinned, and priced by `cost`, which is needed then; kernels wait inside as those of
// `like` (null: none). Fails
// with kInvalidArgument and the reason where none is legal.
SequenceMesh choose_mesh(const SequenceParallel& sp, const MakeForward& model, int64_t q_heads,
                         const CacheShape& cache, const Topology& topology,
                         const OpScheduler& strategy, const KernelCatalog* like,
                         const CostModel* cost);

// Simulated seconds of a step that computes `tokens` tokens of one sequence after `cached` others.
double prompt_seconds(const Plan& plan, int64_t tokens, int64_t cached, const CostModel& cost);

}  // namespace braid
