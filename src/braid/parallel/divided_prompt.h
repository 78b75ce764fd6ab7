#pragma once

#include "braid/parallel/layout_plan.h"

namespace braid {

// The first step of a sequence with products divided over ranks that each have whole weights.
struct DividedPrompt {
  // Attention reads the step's keys from values: no key lies in a cache before.
  Program program;
  // Keys of all heads are gathered on every rank, and its cache takes those that the host gives a
  // slot.
  LayoutPlan layout;
};

// Fails with kUnsupported, naming the reason, for attention other than causal over all keys, and
// for mixtures of experts; with kInvalidArgument for fewer whole groups of query heads than ranks.
DividedPrompt divided_prompt(Program program, int P);

}  // namespace braid
