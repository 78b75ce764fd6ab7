#pragma once

#include "braid/engine/runner.h"

namespace braid {

// Fits a runner to its job: machines are the job's hosts, unless `links` names a number. Fails with
// kInvalidArgument if the ranks are no multiple of the processes, if hosts have unequal or
// scattered processes (naming an order that works), or if links are to be emulated; with
// kUnsupported on GPUs.
void lay_out(RunnerConfig& config);

}  // namespace braid
