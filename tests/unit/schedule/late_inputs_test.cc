// Launches that begin before all of their inputs are there.
#include "braid/schedule/late_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "braid/base/error.h"
#include "braid/ops/one_sided.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/schedule/exposed_bound.h"
#include "braid/schedule/plan.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/verifier.h"
#include "unit/schedule/names_catalog.h"

namespace braid {
namespace {

bool always(const ops::SegmentAttentionAttrs&, const ValueType&) {
  return true;
}

struct Planned {
  SequenceMesh mesh;
  std::vector<Program> programs;
  std::vector<Schedule> schedules;

  std::vector<const Program*> pointers() const {
    std::vector<const Program*> result;
    for (const Program& program : programs) result.push_back(&program);
    return result;
  }
  const Op& op(int launch) const {
    return schedules[0].op(programs[0], schedules[0].launches[static_cast<size_t>(launch)]);
  }
  // The launches of a kind.
  std::vector<int> all(const OpDef& def) const {
    std::vector<int> result;
    for (int i = 0; i < static_cast<int>(schedules[0].launches.size()); ++i) {
      if (op(i).def == &def) result.push_back(i);
    }
    return result;
  }
  const Launch& launch(int i) const { return schedules[0].launches[static_cast<size_t>(i)]; }
};

Planned planned(SpMode mode, const char* machines, const char* strategy, bool stages = true,
                int micro_batches = 1, int64_t tokens = 4096) {
  Planned made{sequence_mesh(mode, parse_topology(machines), 8, {}), {}, {}};
  SequenceAttention a{
      .batch = micro_batches, .q_heads = 8, .kv_heads = 8, .head_dim = 64, .dtype = DType::bf16};
  a.q = a.kv = even_layout(tokens, made.mesh.ranks());
  made.programs = attention_programs(a, made.mesh, stages ? always : ops::TakesStages{});
  PlanRequest request{.micro_batches = {}, .topology = made.mesh.topology, .price = {}};
  for (int mb = 0; mb < micro_batches; ++mb) {
    request.micro_batches.push_back({.capacity = {.sequence = 1}});
  }
  const NamesCatalog catalog;
  std::vector<PlanRank> ranks;
  for (const Program& program : made.programs) ranks.push_back({&program, &catalog});
  made.schedules = plan(*find_strategy(strategy), ranks, request);
  return made;
}

TEST(LateInputs, AttentionBeginsBesideItsPulls) {
  const Planned made = planned(SpMode::ring, "1x4", "sequence_parallel");
  const auto pulls = made.all(ops::kPull);
  const int call = made.all(ops::kSegmentAttention).at(0);
  const LaunchOrder order(made.schedules[0].launches);
  ASSERT_EQ(pulls.size(), 3u);
  EXPECT_EQ(made.launch(call).late, pulls);
  for (int pull : pulls) EXPECT_FALSE(order.before(pull, call));
  // What opens the buffers has ended: so the pulls may run.
  EXPECT_TRUE(order.before(made.all(ops::kSync).at(0), call));
  // What follows the call follows them.
  for (int pull : pulls) EXPECT_TRUE(order.before(pull, made.all(ops::kSync).at(1)));
  EXPECT_NE(
      to_string(made.schedules[0], made.programs[0]).find(fmt::format(" beside {}", pulls[0])),
      std::string::npos);
}

// On one stream there is nothing to wait for; without stages nobody is told.
TEST(LateInputs, AreNoneWhereNothingRunsBeside) {
  for (const Planned& made : {planned(SpMode::ring, "1x4", "sequential"),
                              planned(SpMode::ring, "1x4", "sequence_parallel", false)}) {
    for (const Launch& launch : made.schedules[0].launches) EXPECT_TRUE(launch.late.empty());
  }
}

// The pulls of several micro-batches take turns on a stream; none keeps a call from its begin.
TEST(LateInputs, OfEachMicroBatch) {
  const Planned made = planned(SpMode::ring, "1x4", "sequence_parallel", true, 2);
  const LaunchOrder order(made.schedules[0].launches);
  for (int call : made.all(ops::kSegmentAttention)) {
    ASSERT_EQ(made.launch(call).late.size(), 3u);
    for (int pull : made.launch(call).late) {
      EXPECT_EQ(made.launch(pull).micro_batch, made.launch(call).micro_batch);
    }
  }
  for (int pull : made.all(ops::kPull)) {
    EXPECT_FALSE(order.before(pull, made.all(ops::kSegmentAttention)[0]));
  }
}

// Ranks have different rows: what one does not read another may wait for.
TEST(LateInputs, AreNoneWhereARankReadsNothing) {
  for (int64_t tokens : {1, 2, 3, 4}) {
    const Planned made = planned(SpMode::ring, "1x4", "sequence_parallel", true, 1, tokens);
    verify(made.pointers(), made.schedules);
    for (int call : made.all(ops::kSegmentAttention)) {
      EXPECT_EQ(made.launch(call).late.size(), tokens < 4 ? 0u : 3u) << tokens << " tokens";
    }
  }
}

// A rank that would wait for a stage that nobody announces is refused.
TEST(LateInputs, EveryStageIsAnnounced) {
  Planned made = planned(SpMode::ring, "1x4", "sequence_parallel");
  for (Schedule& schedule : made.schedules) {
    for (Launch& launch : schedule.launches) {
      if (!launch.late.empty()) launch.late.pop_back();
    }
  }
  try {
    verify(made.pointers(), made.schedules);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is told of 2"), std::string::npos) << error.what();
  }
}

// A launch that holds what its late inputs' makers still need is refused.
TEST(LateInputs, WhatTheyNeedHasEnded) {
  Planned made = planned(SpMode::ring, "1x4", "sequence_parallel");
  const auto programs = made.pointers();
  verify(programs, made.schedules);
  const int call = made.all(ops::kSegmentAttention).at(0);
  for (Schedule& schedule : made.schedules) {
    schedule.launches[static_cast<size_t>(call)].waits.clear();
  }
  try {
    verify(programs, made.schedules);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("late inputs"), std::string::npos) << error.what();
  }
}

// Work goes on stage by stage: as long as the longer of transfers and work where they are even, and
// never longer than the stages as calls of their own.
TEST(LateInputs, AreWorkedOnAsTheyCome) {
  const Planned one = planned(SpMode::ring, "1x4", "sequence_parallel", true, 1, 16384);
  const Planned apart = planned(SpMode::ring, "1x4", "sequence_parallel", false, 1, 16384);
  const Work work{.extents = {.sequence = 1}};
  const std::array<double, 3> fast{1e15, 1e15, 1e15}, slow{1e9, 1e9, 1e9};
  const double compute = 3e-3;
  const auto bound = [&](const Planned& made, const std::array<double, 3>& speed) {
    return exposed_bound(made.programs, made.schedules, made.mesh.topology, {&work, 1}, compute,
                         speed);
  };
  EXPECT_NEAR(bound(one, fast), 0, 1e-6);
  // The transfers and the last quarter of the work.
  const double bytes = 2.0 * 4096 * 8 * 64 * 2;
  EXPECT_NEAR(bound(one, slow), 3 * bytes / 1e9 + compute / 4 - compute, 1e-5);
  EXPECT_NEAR(bound(one, slow), bound(apart, slow), 1e-9);
  for (const char* profile : {"h200", "a100"}) {
    const CostModel model(load_profile(profile), one.mesh.topology);
    const double together = simulate(one.pointers(), one.schedules, {&work, 1}, model).seconds;
    const double stages = simulate(apart.pointers(), apart.schedules, {&work, 1}, model).seconds;
    EXPECT_LE(together, stages) << profile;
    EXPECT_GT(together, stages / 2) << profile;
  }
}

}  // namespace
}  // namespace braid
