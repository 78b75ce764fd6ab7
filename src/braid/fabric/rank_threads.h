#pragma once

#include <functional>

#include "braid/fabric/fabric.h"

namespace braid::fabric {

// Runs fn(rank) on a thread per rank of this process and returns after all. The first error of any
// rank ends the job (the others' waits throw kAborted) and is rethrown here.
void run_rank_threads(Fabric& fabric, const std::function<void(int rank)>& fn);

}  // namespace braid::fabric
