#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "braid/engine/approximation.h"

namespace braid::app {

// Adds "approximate", as json_of makes it. Nothing for exact results.
void add_approximation(nlohmann::ordered_json& to, const std::optional<Approximation>& made);

}  // namespace braid::app
