#pragma once

#include "braid/schedule/schedule.h"

namespace braid {

// Sets Launch::beside of all launches: launches of other streams that come neither before nor after
// the launch. A launch that takes early results has their launch beside it, but not the other way
// round: the transfers of the taker are asked for by the launch that makes the results.
void find_beside(const Program& program, Schedule& schedule);

}  // namespace braid
