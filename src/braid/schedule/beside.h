#pragma once

#include <vector>

#include "braid/program/beside.h"
#include "braid/schedule/schedule.h"

namespace braid {

// [launches] What the Schedule lets run at the same time as each: launches of other streams that
// come neither before nor after it. A push that takes a launch's early results has that beside it,
// and not that the push: what it moves is asked for by the launch.
std::vector<Beside> launches_beside(const Program& program, const Schedule& schedule);

}  // namespace braid
