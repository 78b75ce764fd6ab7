#pragma once

#include "braid/engine/forward_plans.h"
#include "braid/job/job.h"

namespace braid {

// All processes compare 128-bit hashes of the Programs and Schedules of all ranks. On a difference
// fails with kInvalidArgument, naming two processes and the first line that differs.
void agree_on_plan(job::Job& job, const PlannedForward& planned);

}  // namespace braid
