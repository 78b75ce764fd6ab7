#include "braid/engine/cuda/gpu_fabric.h"

#include <algorithm>

#include "braid/backend/cuda/check.h"
#include "braid/fabric/nvshmem/device/nvshmem_fabric.h"
#include "braid/fabric/rank_threads.h"

namespace braid {

std::unique_ptr<fabric::Fabric> make_gpu_fabric(job::Job& job, int ranks, int device,
                                                fabric::Duration deadline) {
  fabric::NvshmemFabricConfig config{.device = device, .deadline = deadline};
  config.device_deadline = std::min(config.device_deadline, deadline);
  config.meeting = {
      .process = job.process(),
      .processes = job.processes(),
      .agree = [&job](std::string_view what, std::string_view value) { job.agree(what, value); },
      .broadcast = [&job](std::string_view what,
                          std::string_view value) { return job.broadcast(what, value); }};
  auto hosts = job.make_fabric({.ranks = ranks, .deadline = deadline});
  return std::make_unique<fabric::NvshmemFabric>(std::move(config), std::move(hosts));
}

fabric::DeviceEndpoint& device_endpoint(fabric::Fabric& fabric, int rank) {
  return dynamic_cast<fabric::DeviceEndpoint&>(fabric.endpoint(rank));
}

void on_gpus(fabric::Fabric& fabric, const std::function<void(fabric::DeviceEndpoint&)>& fn) {
  fabric::run_rank_threads(fabric, [&](int rank) {
    fabric::DeviceEndpoint& endpoint = device_endpoint(fabric, rank);
    cuda::check_cuda(cudaSetDevice(endpoint.device()), "choice of the device");
    fn(endpoint);
  });
}

}  // namespace braid
