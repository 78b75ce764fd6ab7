#pragma once

#include "braid/engine/forward_plans.h"
#include "braid/job/job.h"

namespace braid {

// A line about a plan that begins with the 128-bit hash of the Programs and Schedules of all ranks:
// "plan 0123456789abcdef0123456789abcdef: 2 ranks, sequential, 397 launches, arena 123456 bytes".
std::string plan_line(const PlannedForward& planned);

// All processes compare these hashes, and have the line. On a difference fails with
// kInvalidArgument, naming two processes and the first line of their Programs or Schedules that
// differs.
std::string agree_on_plan(job::Job& job, const PlannedForward& planned);

}  // namespace braid
