#pragma once

#include "braid/schedule/rank_view.h"

namespace braid {

// The rules "inputs are made", "states in order" and "accesses in order" of verify() on a rank:
// every read follows the earlier writes in program order (RAW), every write follows the earlier
// reads (WAR) and writes (WAW). An op writes its outputs and OpDef::mutated_inputs, and reads an
// input in the phase named by PhaseTraits::of_input.
void verify_accesses(const RankView& rank);

}  // namespace braid
