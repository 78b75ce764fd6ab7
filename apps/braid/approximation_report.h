#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "braid/engine/approximation.h"

namespace braid::app {

// Adds "approximate": an object with keep, groups, importance, drop_queries, and the shares of
// pairs and far keys. Nothing for exact results.
void add_approximation(nlohmann::ordered_json& to, const std::optional<Approximation>& made);

}  // namespace braid::app
