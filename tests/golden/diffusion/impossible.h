#pragma once

#include "braid/parallel/attention/sequence_mesh.h"

namespace braid::golden {

// The cells of tests over ranks without a mesh: ulysses gives each rank a head, at least. Of the
// tiny models with 2, 3 and 4 heads these are ulysses on more ranks; 24 and 30 heads have none.
inline bool impossible(SpMode mode, const Topology& topology, int64_t heads) {
  return mode == SpMode::ulysses && topology.ranks() > heads;
}

}  // namespace braid::golden
