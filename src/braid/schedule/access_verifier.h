#pragma once

#include "braid/schedule/rank_view.h"

namespace braid {

// The rules "inputs are made", "states in order" and "accesses in order" of verify() on one rank:
// every read follows the writes before it in program order (RAW), every write follows the reads
// (WAR) and the writes (WAW) before it. What an op writes is its outputs and
// OpDef::mutated_inputs; in which phase it reads an input, PhaseTraits::of_input says.
void verify_accesses(const RankView& rank);

}  // namespace braid
