#pragma once

#include <span>

#include "braid/schedule/schedule.h"

namespace braid {

// Gives each computed value and each launch's workspace a place in one arena, the same on all ranks
// of `programs` (largest size over them), so that two share bytes only where the Schedule's order
// proves that one is done with when the other begins. Inputs and outputs keep theirs throughout.
// The values' accesses are those of `schedules`, which differ over ranks in kernels alone.
MemoryPlan plan_memory(std::span<const Program* const> programs,
                       std::span<const Schedule> schedules);

// The same for one rank.
MemoryPlan plan_memory(const Program& program, const Schedule& schedule);

}  // namespace braid
