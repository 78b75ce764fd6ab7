#pragma once

#include <vector>

#include "braid/program/program.h"

namespace braid {

// For each value the value with the same place in the arena, mostly itself. A join_sequence with a
// single part places its input at the joined value's place, and a cut_sequence and reshape_rows
// likewise: nothing is moved. Program inputs and outputs keep their own places.
std::vector<ValueId> place_owners(const Program& program, int micro_batches);

}  // namespace braid
