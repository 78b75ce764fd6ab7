// Launches that a backend runs as one: found, printed, and refused where launches do not allow it.
#include "braid/schedule/launch_groups.h"

#include <gmock/gmock.h>

#include <sstream>

#include "braid/ops/comm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/schedule/timeline_svg.h"
#include "unit/schedule/names_catalog.h"
#include "unit/schedule/planned_decoder.h"
#include "unit/schedule/toy_ops.h"

namespace braid::testing_schedule {
namespace {

constexpr const OpDef* kFeedForwardOps[] = {&ops::kAddRmsNorm, &ops::kGatedLinear, &ops::kLinear};
constinit const JoinForm kFeedForward = {.name = "feed_forward", .ops = kFeedForwardOps};

// Joins norm, gate and up, down.
class JoiningCatalog : public NamesCatalog {
 public:
  LaunchGroup join(const Program&, const LaunchRun& run) const override {
    asked += std::ssize(run.ops);
    if (run.ops.size() < 3 || (over_ranks_only && !run.ranks_alike)) return {};
    for (int i = 0; i < 3; ++i) {
      if (run.ops[i]->def != kFeedForwardOps[i]) return {};
    }
    return {.count = 3, .form = &kFeedForward, .kernel = "feed_forward.test"};
  }
  bool over_ranks_only = false;
  mutable int64_t asked = 0;
};

constexpr int kLayers = 3;

Planned planned_with(const OpScheduler& strategy, const KernelCatalog& catalog, int ranks = 1,
                     int micro_batches = 1, bool alike = false) {
  Planned p =
      planned(strategy, {.ranks = ranks, .micro_batches = micro_batches, .layers = kLayers});
  plan_schedules(p, strategy,
                 {.catalogs = {&catalog},
                  .micro_batches = p.micro_batches,
                  .topology = {.devices = ranks},
                  .price = {},
                  .ranks_alike = alike});
  return p;
}

TEST(LaunchGroups, AreFoundInEachLayer) {
  const JoiningCatalog catalog;
  const Planned plan = planned_with(*find_strategy("sequential"), catalog);
  const Schedule& s = plan.schedules[0];
  ASSERT_EQ(s.groups.size(), kLayers);
  EXPECT_EQ(s.num_launches(), std::ssize(s.launches) - (2 * kLayers));
  int after = 0;
  for (const LaunchGroup& group : s.groups) {
    EXPECT_GE(group.first, after);
    EXPECT_EQ(s.op(plan.programs[0], s.launches[group.first]).def, &ops::kAddRmsNorm);
    EXPECT_EQ(s.group_of(group.first - 1), nullptr);
    for (int i = group.first; i < group.end(); ++i) EXPECT_EQ(s.group_of(i), &group);
    EXPECT_EQ(s.group_of(group.end()), nullptr);
    after = group.end();
  }
}

// The printed Schedule counts and shows a group as one launch, and the hash tells it from launches
// apart.
TEST(LaunchGroups, ArePrintedAndHashed) {
  const JoiningCatalog catalog;
  const Planned plan = planned_with(*find_strategy("sequential"), catalog);
  const Planned apart = planned_with(*find_strategy("sequential"), NamesCatalog());
  const std::string text = to_string(plan.schedules[0], plan.programs[0]);
  EXPECT_THAT(text, testing::StartsWith(fmt::format("schedule sequential: {} launches, ",
                                                    plan.schedules[0].num_launches())));
  const LaunchGroup& group = plan.schedules[0].groups[0];
  EXPECT_THAT(text, testing::HasSubstr(
                        fmt::format("{:4} compute mb 0   feed_forward.test, of 3 launches as one\n"
                                    "{:4} compute mb 0     add_rms_norm ",
                                    group.first, group.first)));
  EXPECT_THAT(to_string(apart.schedules[0], apart.programs[0]),
              testing::Not(testing::HasSubstr("as one")));
  EXPECT_NE(hash_of(plan.schedules[0]), hash_of(apart.schedules[0]));
  Schedule without = plan.schedules[0];
  without.groups.clear();
  EXPECT_EQ(hash_of(without), hash_of(apart.schedules[0]));
}

// Each launch is asked about with at most what follows it, and steps of two micro-batches never.
TEST(LaunchGroups, OfWholeBatchesAlone) {
  const JoiningCatalog catalog;
  const Planned plan = planned_with(*find_strategy("sequential"), catalog);
  EXPECT_GT(catalog.asked, std::ssize(plan.schedules[0].launches));
  catalog.asked = 0;
  const Planned two = planned_with(three_streams(), catalog, 1, 2);
  EXPECT_EQ(catalog.asked, 0);
  EXPECT_TRUE(two.schedules[0].groups.empty());
}

// A catalog hears whether ranks have the same shapes.
TEST(LaunchGroups, HearOfRanks) {
  JoiningCatalog catalog;
  catalog.over_ranks_only = true;
  const auto groups = [&](bool alike) {
    return planned_with(*find_strategy("sequential"), catalog, 1, 1, alike)
        .schedules[0]
        .groups.size();
  };
  EXPECT_EQ(groups(false), 0);
  EXPECT_EQ(groups(true), kLayers);
}

// Attention runs on another stream: its waiters begin runs of launches, its predecessors end runs.
TEST(LaunchGroups, BetweenWaits) {
  const JoiningCatalog catalog;
  const Planned plan = planned_with(three_streams(), catalog);
  EXPECT_EQ(plan.schedules[0].groups.size(), kLayers);
}

int count(const std::string& text, std::string_view word) {
  int n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// Pictures and traces of a simulated step show a group as a single launch. With times of launches
// apart, pictures and traces show each member.
TEST(LaunchGroups, AreDrawnAsTheyRan) {
  const JoiningCatalog catalog;
  const Planned plan = planned_with(*find_strategy("sequential"), catalog);
  const Schedule& s = plan.schedules[0];
  const std::vector<Work> works = {{.extents = plan.programs[0].capacity}};
  const SimulatedStep step =
      simulate(plan, works, CostModel(toy::seconds_profile(), toy::machine_of(1)));
  std::vector<LaunchTime> apart;
  for (size_t i = 0; i < s.launches.size(); ++i) {
    apart.push_back({static_cast<double>(i), static_cast<double>(i) + .5});
  }
  for (const bool joined : {true, false}) {
    const Timeline timeline = {.title = "test",
                               .ranks = {{&plan.programs[0], &s, joined ? step.times[0] : apart}},
                               .works = works};
    std::ostringstream trace;
    write_trace(trace, timeline);
    const std::string svg = timeline_svg({&timeline, 1});
    const int launches = joined ? s.num_launches() : static_cast<int>(s.launches.size());
    EXPECT_EQ(count(trace.str(), "\"ph\":\"X\""), launches);
    EXPECT_EQ(count(trace.str(), "\"kernel\":\"feed_forward.test\""), joined ? kLayers : 0);
    EXPECT_EQ(count(trace.str(), "gated_linear"), joined ? 0 : 2 * kLayers);
    EXPECT_EQ(count(svg, "feed_forward.test, 3 launches as one"), joined ? kLayers : 0);
  }
}

class GroupRules : public testing::Test {
 protected:
  // A group in the first layer, and the launch that follows.
  const JoiningCatalog catalog_;
  Planned plan_ = planned_with(three_streams(), catalog_);
  Schedule& schedule_ = plan_.schedules[0];
  LaunchGroup& group_ = schedule_.groups[0];
  const int first_ = group_.first;

  void refused(const std::vector<std::string>& parts) {
    std::vector<std::string> all = {"launches as one: "};
    all.insert(all.end(), parts.begin(), parts.end());
    expect_refused([&] { plan_.verify(); }, all);
  }
};

TEST_F(GroupRules, GoodGroupsPass) {
  EXPECT_NO_THROW(plan_.verify());
}

TEST_F(GroupRules, Ranges) {
  for (const auto& damage : std::vector<std::function<void(LaunchGroup&)>>{
           [](LaunchGroup& g) { g.count = 1; }, [](LaunchGroup& g) { g.count = 1000; },
           [](LaunchGroup& g) { g.first = -1; }, [](LaunchGroup& g) { g.form = nullptr; }}) {
    const LaunchGroup good = group_;
    damage(group_);
    refused({"a group of launches ["});
    group_ = good;
  }
  std::swap(schedule_.groups[0], schedule_.groups[1]);
  refused({"begins before"});
}

TEST_F(GroupRules, KindsFitTheForm) {
  group_.first -= 2;
  refused(
      {fmt::format("attention at 'layers.0.attn', micro-batch 0: launches as one: in the "
                   "feed_forward of launches [{}, {}) launch {} is no op of this form",
                   first_ - 2, first_ + 1, first_ - 2)});
}

TEST_F(GroupRules, MembersTakeTheResultBefore) {
  const int gate = first_ + 1;
  std::swap(schedule_.launches[gate], schedule_.launches[gate + 1]);
  refused({"takes no result of launch"});
}

TEST_F(GroupRules, OneStream) {
  schedule_.launches[first_ + 1].stream = Stream::side;
  refused({"runs on another stream than launch", "gated_linear at 'layers.0.mlp'"});
}

TEST_F(GroupRules, NoWaitInside) {
  schedule_.launches[first_ + 1].waits = {{plan_.find("attention")}};
  refused({"waits for launch", "(attention at 'layers.0.attn') inside the group"});
}

TEST_F(GroupRules, NobodyWaitsForAMemberButTheLast) {
  const int next = plan_.find("attention", 0, first_);
  schedule_.launches[next].waits.push_back({group_.end() - 1});
  EXPECT_NO_THROW(plan_.verify());
  schedule_.launches[next].waits.push_back({first_});
  refused({fmt::format("launch {} is awaited by launch {}", first_, next)});
}

TEST_F(GroupRules, NothingRunsBeside) {
  const int next = plan_.find("attention", 0, first_);
  schedule_.launches[next].waits.clear();
  refused({"may run beside launch"});
}

TEST_F(GroupRules, NoPartOfTheBatch) {
  Planned two = planned_with(three_streams(), catalog_, 1, 2);
  const int norm = two.find("add_rms_norm", 0);
  two.schedules[0].groups = {
      {.first = norm, .count = 2, .form = &kFeedForward, .kernel = "feed_forward.test"}};
  expect_refused([&] { two.verify(); }, {"launches as one", "works on a part of the batch"});
}

// Where ranks meet in a group, all ranks have the group.
TEST(LaunchGroups, AlikeOnAllRanksAroundACollective) {
  Planned plan = planned_with(*find_strategy("sequential"), NamesCatalog(), 2);
  const int sum = plan.find("all_reduce");
  const OpDef* const both[] = {&ops::kLinear, &ops::kAllReduce};
  const JoinForm form = {.name = "summed", .ops = both};
  const LaunchGroup group = {.first = sum - 1, .count = 2, .form = &form, .kernel = "summed.test"};
  plan.schedules[0].groups = {group};
  expect_refused([&] { plan.verify(); },
                 {"all_reduce at 'layers.0", "launches as one: it is in the summed of launches [",
                  "on rank 0 and apart on rank 1"});
  plan.schedules[1].groups = {group};
  EXPECT_NO_THROW(plan.verify());
  plan.schedules[1].groups[0].kernel = "another.test";
  expect_refused([&] { plan.verify(); }, {"launches as one: it is in the summed"});
}

}  // namespace
}  // namespace braid::testing_schedule
