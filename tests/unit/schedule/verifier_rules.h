#pragma once

#include "unit/schedule/planned_decoder.h"

// Good Schedules to be damaged, for each number of ranks and micro-batches.
namespace braid::testing_schedule {

class VerifierRules : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int P() const { return std::get<0>(GetParam()); }
  int M() const { return std::get<1>(GetParam()); }
  Planned good(const PlanConfig& more = {}) const {
    PlanConfig config = more;
    config.ranks = P();
    config.micro_batches = M();
    return planned(three_streams(), config);
  }
  int last() const { return M() - 1; }
};

class VerifierMicroBatches : public VerifierRules {};
class VerifierRanks : public VerifierRules {};
class VerifierRanksAndMicroBatches : public VerifierRules {};

inline void on_all(Planned& plan, const std::function<void(Schedule&)>& change) {
  for (Schedule& schedule : plan.schedules) change(schedule);
}
inline Launch& at(Schedule& s, int i) {
  return s.launches[static_cast<size_t>(i)];
}
inline int64_t& offset(Schedule& s, ValueId id, int mb) {
  return s.memory
      .value_offset[static_cast<size_t>(id) * s.micro_batches.size() + static_cast<size_t>(mb)];
}
// Takes a launch out; nobody waits for it any more.
inline void remove(Schedule& s, int i) {
  s.launches.erase(s.launches.begin() + i);
  s.memory.workspace_offset.erase(s.memory.workspace_offset.begin() + i);
  for (Launch& launch : s.launches) {
    std::erase_if(launch.waits, [&](const Wait& wait) { return wait.launch == i; });
    for (Wait& wait : launch.waits) wait.launch -= wait.launch > i ? 1 : 0;
  }
}

inline std::string name_of(const testing::TestParamInfo<std::tuple<int, int>>& info) {
  return fmt::format("P{}_M{}", std::get<0>(info.param), std::get<1>(info.param));
}

}  // namespace braid::testing_schedule
