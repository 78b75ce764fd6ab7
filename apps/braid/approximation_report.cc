#include "braid/approximation_report.h"

namespace braid::app {

void add_approximation(nlohmann::ordered_json& to, const std::optional<Approximation>& made) {
  if (!made) return;
  const auto& [levels, shares] = *made;
  to["approximate"] = {{"keep", levels.keep},
                       {"groups", levels.groups},
                       {"importance", to_string(levels.importance)},
                       {"drop_queries", levels.drop_queries},
                       {"pairs", shares.pair_share()},
                       {"far_keys", shares.key_share()}};
}

}  // namespace braid::app
