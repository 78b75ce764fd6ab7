#pragma once

#include <memory>
#include <vector>

#include "braid/fabric/local/host_memory.h"
#include "braid/fabric/ucx/ucx_worker.h"
#include "braid/job/job.h"

namespace braid::job {

// Memories of a new fabric: this process' own, and those of other processes, where UCX shares
// memory with them and they can be mapped, else null. [processes] Collective.
std::vector<std::shared_ptr<fabric::HostMemory>> share_memory(Job& job, fabric::UcxWorker& worker,
                                                              int ranks_per_process);

}  // namespace braid::job
