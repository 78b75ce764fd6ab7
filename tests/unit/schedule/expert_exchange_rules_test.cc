// The exchange of expert rows follows the one-sided rules, and verify() refuses a breach of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/parallel/exchange_programs.h"
#include "unit/schedule/names_catalog.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing_exchange::Sizes;

const Sizes kSizes = {.experts = {{0, 3}, {3, 3}, {3, 8}}};

void plan_all(std::vector<Program> programs, const std::string& strategy = "sequential",
              int micro_batches = 1) {
  const NamesCatalog catalog;
  const int P = static_cast<int>(programs.size());
  Plan plan{std::move(programs), {}};
  std::vector<MicroBatch> parts;
  for (int mb = 0; mb < micro_batches; ++mb) {
    const int64_t shard = even_part(kSizes.S, micro_batches, mb).size();
    parts.push_back({.capacity = {.token = P * shard, .sequence = 1, .row = 1, .shard = shard}});
  }
  plan_schedules(plan, *find_strategy(strategy),
                 {.catalogs = {&catalog},
                  .micro_batches = parts,
                  .topology = {.machines = 1, .devices = P},
                  .price = {}});
}

TEST(ExpertExchangeRules, HoldUnderEveryStrategy) {
  for (const std::string& name : strategy_names(ProgramKind::experts)) {
    for (const int micro_batches : {1, 2}) {
      const bool splits = find_strategy(name)->split({.tokens = 4096}).size() > 1;
      if (micro_batches > 1 && !splits) continue;
      EXPECT_NO_THROW(plan_all(testing_exchange::programs(kSizes), name, micro_batches)) << name;
      EXPECT_NO_THROW(plan_all(testing_exchange::programs(kSizes, true, 8), name, micro_batches))
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

}  // namespace
}  // namespace braid
