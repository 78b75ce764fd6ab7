#pragma once

#include <functional>
#include <memory>

#include "braid/fabric/peer/device_endpoint.h"
#include "braid/job/job.h"

namespace braid {

// The fabric of a job with a rank in each process, on this process' GPU, a CUDA ordinal.
// Collective.
std::unique_ptr<fabric::Fabric> make_gpu_fabric(job::Job& job, int ranks, int device,
                                                fabric::Duration deadline);

// A rank of this process, in a fabric of GPUs.
fabric::DeviceEndpoint& device_endpoint(fabric::Fabric& fabric, int rank);

// Runs fn(endpoint) on a thread for each rank of this process, with the rank's GPU current; errors
// as of run_rank_threads.
void on_gpus(fabric::Fabric& fabric, const std::function<void(fabric::DeviceEndpoint&)>& fn);

}  // namespace braid
