#pragma once

#include "braid/schedule/rank_view.h"

namespace braid {

// The rules of verify() about a single rank (verifier.h). Fills in the view's order and
// launches.
void verify_rank(RankView& rank);

}  // namespace braid
