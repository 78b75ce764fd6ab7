#include "braid/expert_report.h"

namespace braid::app {

void add_expert_loads(nlohmann::ordered_json& to, const Runner& runner) {
  for (const ExpertLoad& load : runner.expert_loads()) {
    to["experts"].push_back({{"layer", load.layer},
                             {"max_over_mean", max_over_mean(load.rows)},
                             {"idle", idle_experts(load.rows)},
                             {"rows", load.rows}});
  }
}

}  // namespace braid::app
