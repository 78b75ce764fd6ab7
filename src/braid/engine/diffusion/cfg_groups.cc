#include "braid/engine/diffusion/cfg_groups.h"

#include "braid/base/error.h"

namespace braid {

Topology cfg_group(Topology topology, int groups) {
  int& part = topology.machines % groups == 0 ? topology.machines : topology.devices;
  if (part % groups != 0) {
    fail(ErrorCode::kInvalidArgument, "{} ranks make no {} equal groups for --cfg-ranks",
         topology.ranks(), groups);
  }
  const int rack = topology.machines / topology.racks;
  part /= groups;
  // A group's machines fill racks or lie in one; else each counts as a rack of its own.
  const bool fills = topology.machines % rack == 0, inside = rack % topology.machines == 0;
  topology.racks = fills ? topology.machines / rack : inside ? 1 : topology.machines;
  return topology;
}

}  // namespace braid
