#pragma once

#include "braid/schedule/rank_view.h"

namespace braid {

// The rule "launches as one" of verify() (verifier.h) on a single rank, after find_order(). Cost:
// launches of streams for each group.
void verify_groups(const RankView& rank);

}  // namespace braid
