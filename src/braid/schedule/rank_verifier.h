#pragma once

#include "braid/schedule/schedule.h"

namespace braid {

// The rules of verify() that concern one rank of `ranks` alone (verifier.h).
void verify_rank(const Program& program, const Schedule& schedule, int ranks);

}  // namespace braid
