#pragma once

#include "braid/schedule/rank_view.h"

namespace braid {

// The rule "memory" of verify(), on a single rank.
void verify_memory(const RankView& rank);

}  // namespace braid
