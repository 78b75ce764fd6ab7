#pragma once

#include <functional>

#include "braid/fabric/local/local_fabric.h"

namespace braid::fabric {

// Runs fn(endpoint) on one thread per rank and returns when all have. The first error of any rank
// ends the job (the others' waits throw kAborted) and is rethrown here.
void run_ranks(LocalFabric& fabric, const std::function<void(Endpoint&)>& fn);

// The same in a world made for this call.
void run_ranks(const LocalFabricConfig& config, const std::function<void(Endpoint&)>& fn);
void run_ranks(int ranks, const std::function<void(Endpoint&)>& fn);

}  // namespace braid::fabric
