#pragma once

#include <vector>

#include "braid/fabric/group.h"
#include "braid/parallel/mesh.h"

namespace braid {

// A rank's part of `ranks` ranks: its group on the mesh's axis "world". The mesh may count further
// ranks, which do not exist.
inline fabric::Group part_group(const Mesh& mesh, int rank, int ranks) {
  fabric::Group part{mesh.group(rank, "world")};
  std::erase_if(part.ranks, [&](int other) { return other >= ranks; });
  return part;
}

}  // namespace braid
