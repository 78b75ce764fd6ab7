#pragma once

#include <nlohmann/json.hpp>

#include "braid/engine/runner.h"

namespace braid::app {

// Adds "experts", the load of each mixture's experts in all steps so far; without a mixture
// nothing.
void add_expert_loads(nlohmann::ordered_json& to, const Runner& runner);

}  // namespace braid::app
