// The exchange of expert rows follows the one-sided rules, and verify() refuses a breach of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/verifier.h"
#include "unit/parallel/exchange_programs.h"
#include "unit/schedule/joined_halves.h"
#include "unit/schedule/names_catalog.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing_exchange::Sizes;

const Sizes kSizes = {.experts = {{0, 3}, {3, 3}, {3, 8}}};

Plan planned(std::vector<Program> programs, const OpScheduler& strategy, int micro_batches = 1) {
  const NamesCatalog catalog;
  const int P = static_cast<int>(programs.size());
  Plan plan{std::move(programs), {}};
  std::vector<MicroBatch> parts;
  for (int mb = 0; mb < micro_batches; ++mb) {
    const int64_t shard = even_part(kSizes.S, micro_batches, mb).size();
    parts.push_back({.capacity = {.token = P * shard, .sequence = 1, .row = 1, .shard = shard}});
  }
  plan_schedules(plan, strategy,
                 {.catalogs = {&catalog},
                  .micro_batches = parts,
                  .topology = {.machines = 1, .devices = P},
                  .price = {}});
  return plan;
}

void plan_all(std::vector<Program> programs, const std::string& strategy = "sequential",
              int micro_batches = 1) {
  planned(std::move(programs), *find_strategy(strategy), micro_batches);
}

TEST(ExpertExchangeRules, HoldUnderEveryStrategy) {
  for (const std::string& name : strategy_names(ProgramKind::experts)) {
    for (const int micro_batches : {1, 2}) {
      const bool splits = find_strategy(name)->split({.tokens = 4096}).size() > 1;
      if (micro_batches > 1 && !splits) continue;
      EXPECT_NO_THROW(plan_all(testing_exchange::programs(kSizes), name, micro_batches)) << name;
      EXPECT_NO_THROW(plan_all(testing_exchange::programs(kSizes, true, 8), name, micro_batches))
          << name;
      Sizes rounds = kSizes;
      rounds.room = 2;
      EXPECT_NO_THROW(plan_all(testing_exchange::programs(rounds, true, 8), name, micro_batches))
          << name;
    }
  }
}

// Changes the n-th sync of every rank and expects the rule's name.
void expect_refused(size_t n, const std::function<void(Op& op, ops::SyncAttrs& attrs)>& change,
                    const std::string& rule, const std::string& strategy = "sequential",
                    int64_t F = 0) {
  std::vector<Program> programs = testing_exchange::programs(kSizes, false, F);
  for (Program& program : programs) {
    size_t seen = 0;
    for (Op& op : program.ops) {
      if (op.def != &ops::kSync || seen++ != n) continue;
      auto attrs = op.attrs.as<ops::SyncAttrs>();
      change(op, attrs);
      op.attrs = Attrs::of(attrs);
    }
  }
  try {
    plan_all(programs, strategy);
    ADD_FAILURE() << "accepted, wanted " << rule;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr(rule));
  }
}

// The exchange's syncs, in order.
constexpr size_t kOpen = 0, kTold = 1, kRows = 2, kSums = 3;

TEST(ExpertExchangeRules, ExpertsThatReadBeforeTheirRowsAreRefused) {
  for (const size_t sync : {kTold, kRows}) {
    expect_refused(
        sync, [](Op&, ops::SyncAttrs& a) { a.arrivals[2] = 0; }, "R3 (RAW)");
    expect_refused(
        sync, [](Op& op, ops::SyncAttrs&) { op.inputs[ops::kSyncFirstClosed] = kNoValue; },
        "R3 (RAW)");
  }
}

TEST(ExpertExchangeRules, ACombineBeforeAllSumsHaveComeIsRefused) {
  expect_refused(
      kSums, [](Op&, ops::SyncAttrs& a) { a.arrivals[0] = 0; }, "R3 (RAW)");
  expect_refused(
      kSums, [](Op& op, ops::SyncAttrs&) { op.inputs[ops::kSyncFirstClosed] = kNoValue; },
      "R3 (RAW)");
}

TEST(ExpertExchangeRules, ADispatchIntoRowsThatAreStillReadIsRefused) {
  expect_refused(
      kOpen, [](Op&, ops::SyncAttrs& a) { a.group.clear(); }, "R2 (WAR)");
}

// The rows of a round are counted when nothing runs over those of the round before.
TEST(ExpertExchangeRules, ARoundThatIsArrangedUnderTheLastIsRefused) {
  Sizes sizes = kSizes;
  sizes.room = 3;
  Plan plan = planned(testing_exchange::programs(sizes, false, 8), *find_strategy("sequential"));
  verify(plan);
  for (Schedule& s : plan.schedules) {
    std::vector<int> arranges;
    for (size_t i = 0; i < s.launches.size(); ++i) {
      const Op& op = plan.programs[0].ops[static_cast<size_t>(s.launches[i].op)];
      if (op.def == &ops::kArrange) arranges.push_back(static_cast<int>(i));
    }
    ASSERT_EQ(arranges.size(), 2u);
    Launch& early = s.launches[static_cast<size_t>(arranges[1])];
    early.stream = Stream::side;
    early.waits = {{.launch = arranges[0]}};
    s.launches[static_cast<size_t>(arranges[1]) + 1].waits.push_back({.launch = arranges[1]});
  }
  try {
    verify(plan);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("extents in order (WAR)"));
    EXPECT_THAT(e.what(), HasSubstr("the extent of expert_row"));
  }
}

TEST(ExpertExchangeRules, AWaitForAPushThatNobodyMakesIsRefused) {
  for (const size_t sync : {kTold, kRows, kSums}) {
    expect_refused(
        sync, [](Op&, ops::SyncAttrs& a) { a.arrivals[1] = 2; }, "no deadlock");
  }
}

// comet's fused ops wait for pushes, too, and stand for the ops that they replace.
TEST(ExpertExchangeRules, CometReplacesTheExchangeAroundTheProducts) {
  const NamesCatalog catalog;
  Plan plan{testing_exchange::programs(kSizes, false, 8), {}};
  plan_schedules(plan, *find_strategy("comet"),
                 {.catalogs = {&catalog},
                  .micro_batches = {{.capacity = kSizes.capacity()}},
                  .topology = {.machines = 1, .devices = 3},
                  .price = {}});
  for (const Schedule& schedule : plan.schedules) {
    std::vector<std::string_view> kinds;
    for (const Op& op : schedule.replacements) kinds.push_back(op.def->kind);
    EXPECT_THAT(kinds, testing::ElementsAre("dispatch_gated", "linear_return"));
  }
  // A sync that counts nothing would let the products begin before their rows.
  expect_refused(
      kRows, [](Op&, ops::SyncAttrs& a) { a.arrivals[2] = 0; }, "R3 (RAW)", "comet", 8);
}

template <class F>
void expect_refused_with(F&& make, const std::string& rule) {
  try {
    make();
    ADD_FAILURE() << "accepted, wanted " << rule;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr(rule));
  }
}

// Joins the first task of each kind in the micro-batches of choice, and runs the rest in order.
struct Joins : testing_schedule::JoinedHalves {
  std::string first, second, fused;
  int first_mb = 0, second_mb = 0;

  void schedule(ScheduleContext& ctx) const override {
    while (ctx.ready(first_mb).empty() || !ctx.ready(first_mb)[0].is(first)) {
      for (int mb = 0; mb < ctx.micro_batches(); ++mb) ctx.execute({ctx.ready(mb)[0]});
    }
    const Task a = ctx.ready(first_mb)[0];
    Task b{a.partition, a.index, second_mb};
    while (!b.is(second)) ++b.partition, ++b.index;
    ctx.execute({a, b}, {.replace = fused});
    while (!ctx.done()) {
      for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
        for (const Task& task : ctx.ready(mb)) ctx.execute({task});
      }
    }
  }
};

TEST(JoinedOpsRules, OpsThatWaitForEachOtherAreRefused) {
  Joins joins;
  joins.first = "dispatch", joins.second = "expert_gated", joins.fused = "gated_dispatch";
  for (const int micro_batches : {1, 2}) {
    expect_refused_with(
        [&] { planned(testing_exchange::programs(kSizes, false, 8), joins, micro_batches); },
        "schedule 'joined_halves': expert_gated at '', micro-batch 0: 'gated_dispatch' joins ops "
        "that wait for none of each other, and inputs of this one are not made");
  }
}

TEST(JoinedOpsRules, OpsOfOtherKindsAndRunsOfOpsAreRefused) {
  Joins joins;
  joins.first = "dispatch", joins.second = "dispatch", joins.fused = "gated_dispatch";
  joins.second_mb = 1;
  expect_refused_with([&] { planned(testing_exchange::programs(kSizes, false, 8), joins, 2); },
                      "'gated_dispatch' does not fit these ops");
  joins.fused = "dispatch_gated";
  expect_refused_with([&] { planned(testing_exchange::programs(kSizes, false, 8), joins, 2); },
                      "'dispatch_gated' does not fit these ops");
}

// verify() reads launches alone: joined ops of which one makes what the other reads, whoever says
// so.
TEST(JoinedOpsRules, VerifyFindsDependentAndUnfitJoins) {
  const auto index = [](const Plan& plan, std::string_view kind, int micro_batch) {
    const Schedule& s = plan.schedules[0];
    for (size_t i = 0; i < s.launches.size(); ++i) {
      const Op& op = plan.programs[0].ops[static_cast<size_t>(s.launches[i].op)];
      if (s.launches[i].replacement < 0 && op.def->kind == kind &&
          s.launches[i].micro_batch == micro_batch) {
        return i;
      }
    }
    ADD_FAILURE() << "no launch of " << kind;
    return size_t{0};
  };
  // Joins launch `second` to launch `first` in a rank's Schedule, both of micro-batch 0.
  const auto joined = [&](std::string_view first, std::string_view second,
                          const std::function<void(Schedule & s, Op & fused)>& change) {
    const Sizes one{.experts = {{0, 4}}};
    Plan plan = planned(testing_exchange::programs(one, false, 8), *find_strategy("sequential"));
    const Program& program = plan.programs[0];
    Schedule& s = plan.schedules[0];
    const size_t a = index(plan, first, 0), b = index(plan, second, 0);
    Op fused = program.ops[static_cast<size_t>(s.launches[a].op)];
    const Op& other = program.ops[static_cast<size_t>(s.launches[b].op)];
    fused.inputs.insert(fused.inputs.end(), other.inputs.begin(), other.inputs.end());
    fused.outputs.insert(fused.outputs.end(), other.outputs.begin(), other.outputs.end());
    s.launches[a].joined = {{s.launches[b].op, 0}};
    s.launches[a].replacement = 0;
    s.launches.erase(s.launches.begin() + static_cast<ptrdiff_t>(b));
    s.memory.workspace_offset.erase(s.memory.workspace_offset.begin() + static_cast<ptrdiff_t>(b));
    change(s, fused);
    s.replacements = {fused};
    verify(plan);
  };
  const auto as_is = [](Schedule&, Op&) {};
  expect_refused_with([&] { joined("expert_gated", "expert_linear", as_is); },
                      "inputs are made (RAW)");
  expect_refused_with([&] { joined("tell", "sync", as_is); }, "meets other ranks");
  expect_refused_with(
      [&] {
        joined("choose", "expert_gated", [](Schedule&, Op& fused) { fused.inputs.pop_back(); });
      },
      "has other operands than the ops that it joins");
  expect_refused_with(
      [&] {
        joined("expert_gated", "expert_linear", [](Schedule& s, Op&) {
          for (Launch& launch : s.launches) {
            if (!launch.joined.empty()) launch.joined[0].micro_batch = 1;
          }
        });
      },
      "names ops");
}

}  // namespace
}  // namespace braid
