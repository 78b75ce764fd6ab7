#pragma once

#include "braid/schedule/plan.h"

namespace braid {

// Gives each computed value and each launch's workspace a place in an arena, equal on all ranks
// (the largest size over ranks). Two places share bytes only if the Schedule's order proves the
// first done before the second begins, or if they are the same value (value_views.h). Inputs and
// outputs keep their places throughout. The Schedules' accesses count; ranks' Schedules differ in
// kernels alone.
MemoryPlan plan_memory(const Plan& plan);

}  // namespace braid
