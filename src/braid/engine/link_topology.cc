#include "braid/engine/link_topology.h"

namespace braid {

Topology topology_of(const fabric::LinkModel& links, int ranks) {
  Topology topology{
      .machines = links.machines, .devices = ranks / links.machines, .racks = links.racks};
  if (links.machine_link) topology.machine_link = *links.machine_link;
  if (links.cluster_link) topology.cluster_link = *links.cluster_link;
  topology.emulated = links.any_emulated();
  topology.mapped = !links.machine_link;
  return topology;
}

}  // namespace braid
