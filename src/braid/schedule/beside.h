#pragma once

#include "braid/schedule/schedule.h"

namespace braid {

// Sets Launch::beside of all launches: launches of other streams that come neither before nor after
// the launch. A launch that takes early results has their maker beside it, but the maker does not
// have the taker beside it: the maker itself asks for the taker's transfers.
void find_beside(const Program& program, Schedule& schedule);

}  // namespace braid
