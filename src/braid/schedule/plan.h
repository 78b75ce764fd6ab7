#pragma once

#include <vector>

#include "braid/program/program.h"
#include "braid/schedule/schedule.h"

namespace braid {

// A step of all ranks in a job: each rank's Program, and the Program's Schedule.
struct Plan {
  std::vector<Program> programs;    // [ranks], with the same ops in the same order
  std::vector<Schedule> schedules;  // [ranks], empty until plan_schedules() makes them

  int ranks() const { return static_cast<int>(programs.size()); }
};

}  // namespace braid
