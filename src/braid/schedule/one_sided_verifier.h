#pragma once

#include <span>

#include "braid/schedule/rank_view.h"

namespace braid {

// The rules R1 to R3 of verify(), over all ranks. Accesses to other ranks' copies of values
// (ops/remote_access.h) stand between two syncs of the owner, and accesses to a copy with common
// rows are ordered. Needs ranks that verify_rank() has accepted.
//
// The proof is carried out on the copy's owner. A remote access begins after its rank has left the
// sync `from`, so after the owner has come to that sync. The access has ended when the owner leaves
// the sync `until`: a meeting that the other rank comes to after the access, or a wait for the
// other rank's pushes. So a remote access counts as a launch on the owner that begins with `from`
// and ends with `until`, and LaunchOrder orders this launch among the owner's launches.
void verify_one_sided(std::span<const RankView> ranks);

}  // namespace braid
