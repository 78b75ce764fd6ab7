#pragma once

#include <vector>

#include "braid/schedule/schedule.h"

namespace braid {

// A launch's work divided over its phases: 1 in all. Among work that may begin, early work comes
// first. Both are empty without waits inside.
struct PhaseWork {
  std::vector<double> early;  // [last phase + 1], or none
  std::vector<double> rest;   // [last phase + 1]
};
PhaseWork phase_work(const Op& op, const Launch& launch);

}  // namespace braid
