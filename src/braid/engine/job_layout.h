#pragma once

#include "braid/engine/runner.h"

namespace braid {

// Fits a runner to its job: machines are the job's hosts, unless `links` names how many. Fails with
// kInvalidArgument where the ranks are no multiple of the processes, where hosts have unequal or
// scattered processes (saying the order that works), or where links are to be emulated; with
// kUnsupported on GPUs.
void lay_out(RunnerConfig& config);

}  // namespace braid
