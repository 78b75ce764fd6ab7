#include "braid/engine/attention/cuda/attention_fabric.h"

#include <algorithm>
#include <span>

#include "braid/backend/device_spec.h"
#include "braid/engine/cuda/gpu_fabric.h"
#include "braid/fabric/peer/peer_fabric.h"

namespace braid::attention_modes {
namespace {

// Two ranks of different machines may share a GPU and send through host memory. Four ranks may
// not: with more streams than hardware queues, a rank waited until the deadline.
std::vector<int> devices_of(const AttentionBench& bench, const Topology& topology) {
  const std::vector<int> ids = parse_device(bench.device).ids;
  for (int r = 0; r < std::min<int>(topology.ranks(), std::ssize(ids)); ++r) {
    const auto before = std::span(ids).first(r);
    const auto it = std::ranges::find(before, ids[r]);
    if (it == before.end()) continue;
    const auto other = static_cast<int>(it - before.begin());
    if (std::ranges::count(before, *it) > 1) {
      fail(ErrorCode::kUnsupported, "--device {}: {} ranks on cuda:{} (bench attention: at most 2)",
           bench.device, std::ranges::count(ids, *it), *it);
    }
    if (topology.machine_of(r) == topology.machine_of(other)) {
      fail(ErrorCode::kInvalidArgument,
           "--device {}: ranks {} and {} of one machine share a GPU, and no link is between them "
           "to measure (--machines {}x1 makes them machines)",
           bench.device, other, r, topology.ranks());
    }
  }
  return ids;
}

}  // namespace

std::unique_ptr<fabric::Fabric> make_fabric(const AttentionBench& bench, const Topology& topology) {
  if (bench.job) {
    return make_gpu_fabric(*bench.job, topology.ranks(), parse_device(bench.device).ids.front(),
                           fabric::PeerFabricConfig{}.deadline);
  }
  fabric::PeerFabricConfig config{.ranks = topology.ranks(),
                                  .devices = devices_of(bench, topology)};
  config.share_devices = !config.devices.empty();
  config.links.machines = topology.machines;
  if (bench.link_gbps > 0) {
    auto& link = topology.machines > 1 ? config.links.cluster_link : config.links.machine_link;
    link = Link{bench.link_gbps * 1e9, 5e-6};
  }
  return std::make_unique<fabric::PeerFabric>(config);
}

}  // namespace braid::attention_modes
