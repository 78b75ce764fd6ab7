#pragma once

#include "braid/engine/attention/attention_cuda.h"
#include "braid/fabric/fabric.h"

namespace braid::attention_modes {

// Measured link speeds of a topology on GPUs; the slowest rank counts. In a job (else null) process
// 0 learns the speeds of all.
LinkSpeed measure_links(job::Job* job, fabric::Fabric& fabric, const Topology& topology,
                        int64_t heads, int64_t head_dim);

}  // namespace braid::attention_modes
