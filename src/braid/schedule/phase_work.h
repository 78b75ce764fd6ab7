#pragma once

#include <vector>

#include "braid/schedule/schedule.h"

namespace braid {

// How a launch's work divides over its phases: 1 in all. Of what may begin, early work is done
// first. Both are empty where the launch waits for nothing inside.
struct PhaseWork {
  std::vector<double> early;  // [last phase + 1], or none
  std::vector<double> rest;   // [last phase + 1]
};
PhaseWork phase_work(const Op& op, const Launch& launch);

}  // namespace braid
