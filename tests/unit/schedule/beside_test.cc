// What may run beside a launch, against reachability in the graph of all launches.
#include <gtest/gtest.h>

#include "braid/schedule/partition.h"
#include "unit/schedule/planned_attention.h"

namespace braid {
namespace {

// after[i][j]: launch i begins when launch j has ended. What takes early results begins after the
// launch that they come of has.
std::vector<std::vector<bool>> reachability(const Schedule& schedule) {
  const size_t n = schedule.launches.size();
  std::vector after(n, std::vector<bool>(n));
  for (size_t i = 0; i < n; ++i) {
    const auto follow = [&](size_t j) {
      after[i][j] = true;
      for (size_t k = 0; k < n; ++k) after[i][k] = after[i][k] || after[j][k];
      for (const Wait& wait : schedule.launches[j].waits) {
        if (!wait.inside()) continue;
        const auto l = static_cast<size_t>(wait.launch);
        after[i][l] = true;
        for (size_t k = 0; k < n; ++k) after[i][k] = after[i][k] || after[l][k];
      }
    };
    for (size_t j = 0; j < i; ++j) {
      if (schedule.launches[j].stream == schedule.launches[i].stream) follow(j);
    }
    for (const Wait& wait : schedule.launches[i].waits) {
      const auto w = static_cast<size_t>(wait.launch);
      if (!wait.inside() && !wait.partial()) follow(w);
      for (size_t k = 0; k < n && wait.partial(); ++k) {
        after[i][k] = after[i][k] || after[w][k];
      }
    }
  }
  return after;
}

std::vector<Beside> beside_of(const Schedule& schedule) {
  std::vector<Beside> beside;
  for (const Launch& launch : schedule.launches) beside.push_back(launch.beside);
  return beside;
}

TEST(Beside, IsWhatNoOrderForbids) {
  int computes = 0, communications = 0, pulls = 0, alone = 0, turn = 0;
  for (SpMode mode : kSpModes) {
    for (const char* machines : {"1x2", "2x1", "2x2"}) {
      for (int micro_batches : {1, 2}) {
        for (const char* strategy : {"sequential", "sequence_parallel", "overlap", "nanoflow"}) {
          if (micro_batches > 1 && std::string_view(strategy) == "sequential") continue;
          const PlannedAttention made = planned_attention({.mode = mode,
                                                           .machines = machines,
                                                           .strategy = strategy,
                                                           .stages = ++turn % 2 == 0,
                                                           .micro_batches = micro_batches,
                                                           .text = 5});
          const Program& program = made.programs[0];
          const Schedule& schedule = made.schedules[0];
          const auto beside = beside_of(schedule);
          const auto after = reachability(schedule);
          for (size_t i = 0; i < beside.size(); ++i) {
            Beside want;
            for (size_t j = 0; j < beside.size(); ++j) {
              const Op& op = schedule.op(program, schedule.launches[j]);
              if (i == j || after[i][j] || after[j][i] || op.def->kind == "buffers") continue;
              if (schedule.launches[j].takes_part_of(static_cast<int>(i))) continue;
              const bool pulls = op.def->kind == "pull";
              (pulls ? want.pulls : communicates(op) ? want.communicates : want.computes) = true;
            }
            ASSERT_EQ(beside[i].computes, want.computes) << to_string(schedule, program);
            ASSERT_EQ(beside[i].communicates, want.communicates) << to_string(schedule, program);
            ASSERT_EQ(beside[i].pulls, want.pulls) << to_string(schedule, program);
            computes += want.computes;
            communications += want.communicates;
            pulls += want.pulls;
            alone += !want.computes && !want.communicates && !want.pulls;
          }
        }
      }
    }
  }
  EXPECT_GT(computes, 50);
  EXPECT_GT(communications, 50);
  EXPECT_GT(pulls, 50);
  EXPECT_GT(alone, 50);
}

// Of one batch nothing runs beside ulysses' attention, and nothing computes beside its pushes; of
// two each hides the other's.
TEST(Beside, UlyssesHidesNothingOfOneBatch) {
  for (int micro_batches : {1, 2}) {
    const PlannedAttention made = planned_attention({.mode = SpMode::ulysses,
                                                     .machines = "1x2",
                                                     .strategy = "overlap",
                                                     .micro_batches = micro_batches,
                                                     .text = 5});
    const Program& program = made.programs[0];
    const Schedule& schedule = made.schedules[0];
    const auto beside = beside_of(schedule);
    bool hidden = false, crowded = false;
    for (size_t i = 0; i < beside.size(); ++i) {
      const std::string_view kind = schedule.op(program, schedule.launches[i]).def->kind;
      if (kind == "push") hidden = hidden || beside[i].computes;
      if (kind == "segment_attention") crowded = crowded || beside[i].communicates;
    }
    EXPECT_EQ(hidden, micro_batches > 1) << to_string(schedule, program);
    EXPECT_EQ(crowded, micro_batches > 1) << to_string(schedule, program);
  }
}

// Attention that takes its stages as they come has nothing beside it that needs an SM: pulls take
// none, and what leaves early is asked for by the attention itself.
TEST(Beside, OneCallOfAllStagesSharesTheDeviceWithPullsAlone) {
  for (SpMode mode : {SpMode::ring, SpMode::torus}) {
    for (const char* machines : {"1x2", "2x1"}) {
      const PlannedAttention made = planned_attention({.mode = mode,
                                                       .machines = machines,
                                                       .strategy = "sequence_parallel",
                                                       .stages = true,
                                                       .text = 5});
      const Program& program = made.programs[0];
      const Schedule& schedule = made.schedules[0];
      const auto beside = beside_of(schedule);
      for (size_t i = 0; i < beside.size(); ++i) {
        if (schedule.launches[i].last_phase() == 0) continue;
        EXPECT_TRUE(beside[i].pulls) << to_string(schedule, program);
        EXPECT_FALSE(beside[i].communicates) << to_string(schedule, program);
      }
    }
  }
}

}  // namespace
}  // namespace braid
