#pragma once

#include <vector>

#include "braid/program/beside.h"
#include "braid/schedule/schedule.h"

namespace braid {

// [launches] What the Schedule lets run at the same time as each: launches of other streams that
// come neither before nor after it.
std::vector<Beside> launches_beside(const Program& program, const Schedule& schedule);

}  // namespace braid
