#pragma once

#include "braid/schedule/schedule.h"

namespace braid {

// Sets Launch::beside in all launches: launches of other streams that come neither before nor after
// the launch. A launch with a partial wait counts the awaited launch as beside. The awaited launch
// does not count the waiting launch, which asks for these transfers itself.
void find_beside(const Program& program, Schedule& schedule);

}  // namespace braid
