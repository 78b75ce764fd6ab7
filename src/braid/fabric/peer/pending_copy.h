#pragma once

#include <cuda_runtime.h>

#include <string>

#include "braid/backend/cuda/handles.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/job_error.h"

namespace braid::fabric {

// A rank's copies to or from a GPU, waited for by the rank's host thread.
struct CopyWaiter {
  const JobError& error;  // of the job; lives longer than the copies
  int rank = 0;
  Duration deadline{};
};

// The copies so far in `device`'s `stream`, as a Transfer; `what` names the copies in errors.
Transfer pending_copy(const CopyWaiter& waiter, int device, cudaStream_t stream, std::string what);

}  // namespace braid::fabric
