#pragma once

#include "braid/schedule/schedule.h"

namespace braid {

// Sets Launch::beside in all launches: launches of other streams that come neither before nor after
// the launch. A launch that takes early results counts their maker as beside. The maker does not
// count the taker, because the maker itself asks for the taker's transfers.
void find_beside(const Program& program, Schedule& schedule);

}  // namespace braid
