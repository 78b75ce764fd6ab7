#pragma once

#include "braid/schedule/plan.h"

namespace braid {

// Gives each computed value and each launch's workspace a place in one arena, the same on all ranks
// (largest size over them), so that two share bytes only where the Schedule's order
// proves that one is done with when the other begins. Inputs and outputs keep theirs throughout.
// The values' accesses are those of the Schedules, which differ over ranks in kernels alone.
MemoryPlan plan_memory(const Plan& plan);

}  // namespace braid
