#include "braid/engine/diffusion/cfg_groups.h"

#include "braid/base/error.h"

namespace braid {

Topology cfg_group(Topology topology, int groups) {
  int& part = topology.machines % groups == 0 ? topology.machines : topology.devices;
  if (part % groups != 0) {
    fail(ErrorCode::kInvalidArgument, "{} ranks make no {} equal groups for --cfg-ranks",
         topology.ranks(), groups);
  }
  part /= groups;
  return topology;
}

}  // namespace braid
