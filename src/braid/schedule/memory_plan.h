#pragma once

#include <span>

#include "braid/schedule/schedule.h"

namespace braid {

// Gives each computed value and each launch's workspace an offset in one arena, so that no two that
// are live at once overlap. A value lives from the launch that makes it to its last reader; inputs
// and program outputs live throughout. Launches are taken to run one after the other in the order
// given.
MemoryPlan plan_memory(const Program& program, std::span<const Launch> launches);

}  // namespace braid
