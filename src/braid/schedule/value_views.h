#pragma once

#include <vector>

#include "braid/program/program.h"

namespace braid {

// For each value the value whose place in the arena it has, mostly itself. The only part of a
// join_sequence lies where the joined value does, and that of a cut_sequence likewise: nothing is
// moved. Inputs and outputs of the Program keep places of their own.
std::vector<ValueId> place_owners(const Program& program, int micro_batches);

}  // namespace braid
