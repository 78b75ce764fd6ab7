#pragma once

#include "braid/schedule/rank_view.h"

namespace braid {

// The rules of verify() that concern one rank alone (verifier.h). Finds the order and the launches
// of the view.
void verify_rank(RankView& rank);

}  // namespace braid
