#pragma once

#include <optional>

#include "braid/engine/forward_plans.h"

namespace braid {

// How ranks divide the tokens of a sequence, each with whole weights.
struct SequenceParallel {
  std::optional<SpMode> mode;  // none: the fastest mode in simulation
  SpRequest degrees;
  int64_t tokens = 0;  // length of the prompts to be fastest for; 0: as many as the cache holds
};

// Chooses the mesh over a topology's ranks. Without a mode, plans a forward pass of
// `model` over a prompt for every mode and all legal degrees with the pinned degrees,
// and takes the cheapest by `cost`, which is needed then; kernels wait inside like those
// of `like` (null: none). Fails with kInvalidArgument and the reason if no mesh is
// legal.
SequenceMesh choose_mesh(const SequenceParallel& sp, const MakeForward& model, int64_t q_heads,
                         const CacheShape& cache, const Topology& topology,
                         const OpScheduler& strategy, const KernelCatalog* like,
                         const CostModel* cost);

// Simulated seconds of a step with `tokens` tokens of a sequence behind `cached` others.
double prompt_seconds(const Plan& plan, int64_t tokens, int64_t cached, const CostModel& cost);

}  // namespace braid
