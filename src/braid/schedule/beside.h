#pragma once

#include <vector>

#include "braid/schedule/schedule.h"

namespace braid {

// What a Schedule lets run at the same time as a launch: launches of other streams that come
// neither before nor after it.
struct Beside {
  bool computes = false;
  bool communicates = false;
};

// [launches]
std::vector<Beside> launches_beside(const Program& program, const Schedule& schedule);

}  // namespace braid
