#pragma once

#include <vector>

#include "braid/schedule/schedule.h"

namespace braid {

// Division of a launch's work: 1 in all, by parts of the results and phases, [parts][last phase +
// 1]. Among work that may begin, an earlier part's comes first. Empty without waits inside.
using PhaseWork = std::vector<std::vector<double>>;
PhaseWork phase_work(const Op& op, const Launch& launch);

}  // namespace braid
