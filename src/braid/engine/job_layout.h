#pragma once

#include "braid/engine/runner.h"

namespace braid {

// Fits a runner to its job: machines are the job's hosts, unless `links` names a number. Fails with
// kInvalidArgument if the ranks are no multiple of the processes (on GPUs: not as many), if hosts
// have unequal or scattered processes (naming an order that works), or if links are to be emulated;
// with kUnsupported for GPUs of several machines.
void lay_out(RunnerConfig& config);

// Makes the GPU that take_gpu() will choose current, with its context: a second's work. Nothing on
// CPUs, and where there is no such GPU, which take_gpu() reports.
void start_gpu(const job::Job& job, const DeviceSpec& device);

// A job's runner on GPUs gets the GPU of this process. Collective. Fails as choose_gpu() and
// require_own_gpus() do.
void take_gpu(RunnerConfig& config);

// A rank's facts for the choice of its GPU.
struct GpuRequest {
  std::string who;  // "rank 1 on HOST"
  int rank = 0;
  int local_rank = 0;        // place among the host's processes
  int visible = 0;           // GPUs that this process sees
  const DeviceSpec& device;  // as the user named it, for all ranks
};

// The CUDA ordinal: the named GPU, else the only visible GPU, else the local rank's. Fails with
// kResource, naming the rank, the wanted GPU and the number of GPUs.
int choose_gpu(const GpuRequest& request);

// Fails with kInvalidArgument if two ranks have the same GPU. `uuids` [ranks], `names` as in
// GpuRequest.
void require_own_gpus(const std::vector<std::string>& uuids, const std::vector<std::string>& names);

}  // namespace braid
