// Launches that wait inside, and launches that take early results.
#include "braid/schedule/launch_waits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "braid/base/error.h"
#include "braid/ops/one_sided.h"
#include "braid/schedule/phase_work.h"
#include "braid/schedule/schedule_bound.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/verifier.h"
#include "unit/schedule/planned_attention.h"

namespace braid {
namespace {

// Rank 0's.
struct Planned : PlannedAttention {
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
  // What a launch waits for inside, phase by phase.
  std::vector<int> inside(int i) const {
    std::vector<int> result;
    for (const Wait& wait : launch(i).waits) {
      if (wait.inside()) result.push_back(wait.launch);
    }
    return result;
  }
  // The launch of which another takes early results; -1: of none.
  int early_of(int i) const {
    for (const Wait& wait : launch(i).waits) {
      if (wait.partial()) return wait.launch;
    }
    return -1;
  }
};

Planned planned(const AttentionPlanCase& c) {
  return {planned_attention(c)};
}

TEST(LaunchWaits, AttentionBeginsBesideItsPulls) {
  const Planned made = planned({.stages = true});
  const auto pulls = made.all(ops::kPull);
  const int call = made.all(ops::kSegmentAttention).at(0);
  const LaunchOrder order(made.schedules[0].launches);
  ASSERT_EQ(pulls.size(), 3u);
  EXPECT_EQ(made.inside(call), pulls);
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
TEST(LaunchWaits, AreNoneWhereNothingRunsBeside) {
  for (const Planned& made : {planned({.strategy = "sequential", .stages = true}), planned({})}) {
    for (const Launch& launch : made.schedules[0].launches) EXPECT_EQ(launch.last_phase(), 0);
  }
}

// The pulls of several micro-batches take turns on a stream; none keeps a call from its begin.
TEST(LaunchWaits, OfEachMicroBatch) {
  const Planned made = planned({.stages = true, .micro_batches = 2});
  const LaunchOrder order(made.schedules[0].launches);
  for (int call : made.all(ops::kSegmentAttention)) {
    ASSERT_EQ(made.inside(call).size(), 3u);
    for (int pull : made.inside(call)) {
      EXPECT_EQ(made.launch(pull).micro_batch, made.launch(call).micro_batch);
    }
  }
  for (int pull : made.all(ops::kPull)) {
    EXPECT_FALSE(order.before(pull, made.all(ops::kSegmentAttention)[0]));
  }
}

// Ranks have different rows: what one does not read another may wait for.
TEST(LaunchWaits, AreNoneWhereARankReadsNothing) {
  for (int64_t tokens : {1, 2, 3, 4}) {
    const Planned made = planned({.stages = true, .tokens = tokens});
    verify(made);
    for (int call : made.all(ops::kSegmentAttention)) {
      EXPECT_EQ(made.inside(call).size(), tokens < 4 ? 0u : 3u) << tokens << " tokens";
    }
  }
}

// A rank that would wait for a stage that nobody announces is refused.
TEST(LaunchWaits, EveryStageIsAnnounced) {
  Planned made = planned({.stages = true});
  for (Schedule& schedule : made.schedules) {
    for (Launch& launch : schedule.launches) {
      if (launch.last_phase() > 0) launch.waits.pop_back();
    }
  }
  try {
    verify(made);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has phase 3 and waits for phases up to 2"),
              std::string::npos)
        << error.what();
  }
}

std::string refusal(const Planned& made) {
  try {
    verify(made);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Stage s is what the s-th pull brings: others, and pulls that overtake each other, are refused.
TEST(LaunchWaits, FollowEachOtherInTheOrderOfStages) {
  const Planned good = planned({.stages = true});
  const auto call = static_cast<size_t>(good.all(ops::kSegmentAttention).at(0));
  Planned turned = good, apart = good;
  for (Schedule& schedule : turned.schedules) {
    std::vector<Wait>& waits = schedule.launches[call].waits;
    std::swap(waits[waits.size() - 1].launch, waits[waits.size() - 2].launch);
  }
  EXPECT_NE(refusal(turned).find("do not follow each other on one stream"), std::string::npos);
  for (Schedule& schedule : apart.schedules) {
    schedule.launches[static_cast<size_t>(good.inside(static_cast<int>(call))[1])].stream =
        Stream::comm;
  }
  EXPECT_NE(refusal(apart).find("do not follow each other on one stream"), std::string::npos);
}

// An attention that is told of no pull reads what may not be there.
TEST(LaunchWaits, WithoutThemTheAttentionWaits) {
  Planned made = planned({.stages = true});
  for (Schedule& schedule : made.schedules) {
    for (Launch& launch : schedule.launches) std::erase_if(launch.waits, &Wait::inside);
  }
  const std::string message = refusal(made);
  EXPECT_NE(message.find("segment_attention at 'attend'"), std::string::npos) << message;
  EXPECT_NE(message.find("accesses in order (RAW)"), std::string::npos) << message;
  EXPECT_NE(message.find("(pull at 'ring1')"), std::string::npos) << message;
}

// A launch that may hold what the pulls that it waits for still need is refused.
TEST(LaunchWaits, WhatTheyNeedHasEnded) {
  Planned made = planned({.stages = true});
  verify(made);
  const int call = made.all(ops::kSegmentAttention).at(0);
  for (Schedule& schedule : made.schedules) {
    std::erase_if(schedule.launches[static_cast<size_t>(call)].waits,
                  [](const Wait& wait) { return !wait.inside(); });
  }
  try {
    verify(made);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("waits inside"), std::string::npos) << error.what();
  }
}

// A launch that waits inside for what needs units itself is refused: it holds them all.
TEST(LaunchWaits, WhatIsAwaitedInsideNeedsNoUnits) {
  const Planned good = planned({.stages = true});
  const int call = good.all(ops::kSegmentAttention).at(0);
  for (int pull : good.inside(call)) {
    Planned made = good;
    for (Schedule& schedule : made.schedules) {
      schedule.launches[static_cast<size_t>(pull)].kernel.holds_units = true;
    }
    const std::string message = refusal(made);
    EXPECT_NE(message.find(fmt::format("may hold the units that launch {} (pull", pull)),
              std::string::npos)
        << message;
  }
}

// What others' queries come to leaves under what is left of the call; what follows the push follows
// the call, too.
TEST(LaunchWaits, APushBeginsBesideTheAttentionWhoseEarlyResultsItSends) {
  for (const auto& [mode, machines] : {std::pair{SpMode::torus, "2x1"},
                                       {SpMode::torus, "4x1"},
                                       {SpMode::torus, "2x2"},
                                       {SpMode::ring, "2x1"},
                                       {SpMode::ring, "2x2"}}) {
    Planned made =
        planned({.mode = mode, .machines = machines, .stages = true, .tokens = 600, .text = 12});
    verify(made);
    const int call = made.all(ops::kSegmentAttention).at(0);
    const LaunchOrder order(made.schedules[0].launches);
    int beside = 0;
    for (int push : made.all(ops::kPush)) {
      const bool tells_alone = made.op(push).attrs.as<ops::MoveAttrs>().moves.empty();
      if (made.early_of(push) < 0) {
        EXPECT_TRUE(order.before(call, push)) << machines;
        continue;
      }
      ++beside;
      EXPECT_FALSE(tells_alone) << machines;
      EXPECT_EQ(made.early_of(push), call) << machines;
      EXPECT_FALSE(order.before(call, push)) << machines;
    }
    EXPECT_GT(beside, 0) << machines;
    EXPECT_TRUE(order.before(call, made.all(ops::kSync).back())) << machines;
  }
}

// What moves is asked for by the attention: a push that needs what ends later, as what a pull
// brings while the attention runs, is asked for when that has.
TEST(LaunchWaits, APushWaitsForWhatEndsAfterTheAttentionHasBegun) {
  const auto takes_keys = [](Program& program) {
    const auto pull = std::ranges::find(program.ops, &ops::kPull, &Op::def);
    for (Op& op : program.ops) {
      if (op.def == &ops::kPush) op.inputs.push_back(pull->inputs[0]);
    }
  };
  AttentionPlanCase c{.mode = SpMode::torus, .machines = "2x1", .stages = true, .tokens = 600};
  for (bool needs_more : {false, true}) {
    if (needs_more) c.change = takes_keys;
    const Planned made = planned(c);
    int early = 0;
    for (int i = 0; i < std::ssize(made.schedules[0].launches); ++i) early += made.early_of(i) >= 0;
    EXPECT_EQ(early, needs_more ? 0 : 1);
  }
}

// A rank without early rows follows the same launches, and its push takes nothing.
TEST(LaunchWaits, EarlyResultsOfSomeRanksAlone) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0, 5}, {5, 0}, {3, 400}}) {
    const Planned made =
        planned({.mode = SpMode::torus, .machines = "2x1", .stages = true, .rows = rows});
    verify(made);
    const Work work{.extents = {.sequence = 1}};
    const CostModel model(load_profile("h200"), made.mesh.topology);
    EXPECT_GT(simulate(made, {&work, 1}, model).seconds, 0);
  }
}

// A push that takes what is not early is refused beside the call.
TEST(LaunchWaits, APushWaitsForWhatIsNotEarly) {
  Planned made = planned({.mode = SpMode::torus, .machines = "2x1", .stages = true, .tokens = 600});
  verify(made);
  for (Program& program : made.programs) {
    for (Op& op : program.ops) {
      if (op.def != &ops::kSegmentAttention) continue;
      auto attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
      for (ops::QSegment& s : attrs.q) s.part = kLastPart;
      op.attrs = Attrs::of(attrs);
    }
  }
  try {
    verify(made);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has not made what it takes"), std::string::npos)
        << error.what();
  }
}

// Only ops with phases wait inside.
TEST(LaunchWaits, ALaunchOfOnePhaseDoesNotWaitInside) {
  Planned made = planned({.stages = true});
  const int sync = made.all(ops::kSync).at(1), pull = made.all(ops::kPull).at(0);
  for (Schedule& schedule : made.schedules) {
    schedule.launches[static_cast<size_t>(sync)].waits.push_back({pull, 1});
  }
  EXPECT_NE(refusal(made).find("has one phase"), std::string::npos) << refusal(made);
}

// A launch takes early results of one other launch at most.
TEST(LaunchWaits, EarlyResultsOfTwoLaunchesAreRefused) {
  Planned made = planned({.mode = SpMode::torus, .machines = "2x1", .stages = true, .tokens = 600});
  const int push = made.all(ops::kPush).at(0);
  ASSERT_GE(made.early_of(push), 0);
  for (Schedule& schedule : made.schedules) {
    std::vector<Wait>& waits = schedule.launches[static_cast<size_t>(push)].waits;
    waits.push_back(waits.back());
  }
  EXPECT_NE(refusal(made).find("result parts"), std::string::npos) << refusal(made);
}

// Results that leave early hide as much as in stages of their own.
TEST(LaunchWaits, EarlyResultsLeaveUnderTheRest) {
  const AttentionPlanCase c{.mode = SpMode::torus, .machines = "2x1", .tokens = 16384, .text = 256};
  AttentionPlanCase together = c;
  together.stages = true;
  const Planned one = planned(together), apart = planned(c);
  const Work work{.extents = {.sequence = 1}};
  const auto bound = [&](const Planned& made, double speed) {
    return schedule_bound(made, made.mesh.topology, {&work, 1}, 3e-3,
                          {LinkProfile{speed}, {speed}, {speed}});
  };
  for (double speed : {1e9, 1e10, 2e10, 1e12}) {
    EXPECT_LE(bound(one, speed), bound(apart, speed) + 1e-6) << speed;
    EXPECT_GE(bound(one, speed), 0) << speed;
  }
  const CostModel model(load_profile("h200"), one.mesh.topology);
  const double seconds = simulate(one, {&work, 1}, model).seconds;
  const double stages = simulate(apart, {&work, 1}, model).seconds;
  EXPECT_LE(seconds, stages * 1.001);
  EXPECT_GT(seconds, stages / 2);
}

// Work goes on stage by stage: as long as the longer of transfers and work where they are even, and
// never longer than the stages as calls of their own.
TEST(LaunchWaits, AreWorkedOnAsTheyCome) {
  const Planned one = planned({.stages = true, .tokens = 16384});
  const Planned apart = planned({.tokens = 16384});
  const Work work{.extents = {.sequence = 1}};
  const LinkProfile fast{1e15}, slow{1e9};
  const double compute = 3e-3;
  const auto bound = [&](const Planned& made, const LinkProfile& link) {
    return schedule_bound(made, made.mesh.topology, {&work, 1}, compute, {link, link, link});
  };
  EXPECT_NEAR(bound(one, fast), 0, 1e-6);
  // The transfers and the last quarter of the work.
  const double bytes = 2.0 * 4096 * 8 * 64 * 2;
  EXPECT_NEAR(bound(one, slow), 3 * bytes / 1e9 + compute / 4 - compute, 1e-5);
  EXPECT_NEAR(bound(one, slow), bound(apart, slow), 1e-9);
  for (const char* profile : {"h200", "a100"}) {
    const CostModel model(load_profile(profile), one.mesh.topology);
    const double together = simulate(one, {&work, 1}, model).seconds;
    const double stages = simulate(apart, {&work, 1}, model).seconds;
    EXPECT_LE(together, stages) << profile;
    EXPECT_GT(together, stages / 2) << profile;
  }
}

// What is left to do once the last keys are there is their last part; the first one may come late.
TEST(LaunchWaits, PartsAreWorkedOnAsTheyCome) {
  const AttentionPlanCase c{.machines = "2x1", .stages = true, .tokens = 16384};
  const Planned parts = planned(c);
  const Work work{.extents = {.sequence = 1}};
  const double compute = 3e-3, bytes = 2.0 * 8192 * 8 * 64 * 2;
  for (double speed : {1e9, 5e9, bytes / compute / 0.96, 1e10, 1e15}) {
    const double bound = schedule_bound(parts, parts.mesh.topology, {&work, 1}, compute,
                                        {LinkProfile{speed}, {speed}, {speed}});
    const double last = 8192 / 15 / 8192. * compute / 2;
    const double first = bytes / speed * 8 / 15 - compute / 2;
    EXPECT_NEAR(bound, std::max({0., first, bytes / speed + last - compute}), 2e-6) << speed;
  }
}

// Steps that take a little longer to come than their work leave no gap each.
TEST(LaunchWaits, PartsOfEachStepCloseGaps) {
  const Planned parts = planned({.machines = "4x1", .stages = true, .tokens = 16384});
  const Work work{.extents = {.sequence = 1}};
  const double compute = 3e-3, bytes = 2.0 * 4096 * 8 * 64 * 2, speed = bytes / (1.2 * compute / 4);
  EXPECT_LT(schedule_bound(parts, parts.mesh.topology, {&work, 1}, compute,
                           {LinkProfile{speed}, {speed}, {speed}}),
            0.02 * compute);  // whole steps: two gaps of 5%
}

// Early work comes between slices of the rest, and what takes its results does not wait for pulls
// that bring none of it.
TEST(LaunchWaits, SimulatedEarlyWorkIsDoneFirst) {
  const Planned made =
      planned({.mode = SpMode::torus, .machines = "2x1", .stages = true, .tokens = 65536});
  Profile profile = load_profile("h200");
  profile.cluster_link.bytes_per_second = 1e15;
  const CostModel model(profile, made.mesh.topology);
  const Work work{.extents = {.sequence = 1}};
  const SimulatedStep step = simulate(made, {&work, 1}, model);
  const int call = made.all(ops::kSegmentAttention).at(0), push = made.all(ops::kPush).at(0);
  ASSERT_EQ(made.early_of(push), call);
  const PhaseWork work_of_call = phase_work(made.op(call), made.launch(call));
  double early = 0;
  for (double share : work_of_call[0]) early += share;
  const auto& times = step.times[0];
  const LaunchTime& all = times[static_cast<size_t>(call)];
  const double share = (times[static_cast<size_t>(push)].begin - all.begin) / (all.end - all.begin);
  EXPECT_GT(share, early);
  EXPECT_LT(share, early + work_of_call.back()[0] / 8);
}

}  // namespace
}  // namespace braid
