#pragma once

#include <span>
#include <vector>

#include "braid/ops/kernel_catalog.h"
#include "braid/program/program.h"

namespace braid {

// Cuts the attention calls of all ranks' Programs for the kernels that will run them. A call stays
// whole if the kernel of every rank waits for the call's phases inside, and the ranks do not meet
// between the phases: a waiting kernel would hold the units that a meeting needs. Any other call
// becomes a call for each phase, with the pairs of a query and a key that the phase completes, and
// the calls carry a running state. If rows of parts before the last are sent to other ranks, the
// calls finish these rows first. A last call then lets all other queries take the same keys, beside
// the transfer of the finished rows.
//
// `programs` [ranks] have the same ops on the same values. `kernels` has a catalog for each rank,
// or one for all; empty: no kernel waits inside. Returns whether a call was cut.
bool cut_phases(std::span<Program* const> programs, std::span<const KernelCatalog* const> kernels);

}  // namespace braid
