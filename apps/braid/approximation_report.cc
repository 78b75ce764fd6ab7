#include "braid/approximation_report.h"

namespace braid::app {

void add_approximation(nlohmann::ordered_json& to, const std::optional<Approximation>& made) {
  if (made) to["approximate"] = json_of(*made);
}

}  // namespace braid::app
