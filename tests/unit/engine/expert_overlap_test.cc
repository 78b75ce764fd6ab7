// In simulation sbo and dbo hide the exchange of expert rows, and `auto` takes them where they pay.
#include <gtest/gtest.h>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/step_plans.h"
#include "braid/engine/strategy_choice.h"
#include "braid/model/model_shape.h"
#include "braid/parallel/experts/exchange.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/schedule/joined_halves.h"

namespace braid {
namespace {

// Rows divided and nothing beside anything else.
class OneStream : public OpScheduler {
 public:
  std::string name() const override { return "one_stream"; }
  LayoutRequest layout(const BatchInfo&) const override { return {.token_sharded_residual = true}; }
  void partition(PartitionRules&) const override {}
  void schedule(ScheduleContext& ctx) const override { ctx.execute(ctx.ready(0)); }
};

// Seconds of a step on H200s, and of rank 0's launches by kind.
struct Seconds {
  double step = 0;
  double without = 0;   // communication
  double exchange = 0;  // of expert rows
  double other = 0;     // communication
  double shared = 0;    // experts
};

class ExpertOverlap : public testing::Test {
 protected:
  static constexpr int kRanks = 4;
  static constexpr int64_t kPage = 64;

  ForwardPlanner planner(const ModelShape& shape, int64_t tokens) const {
    const int64_t pages = ceil_div(tokens, kPage);
    return {[&shape](const ForwardShape& s) { return shape.forward(s); },
            {.pages = pages,
             .page_size = kPage,
             .pages_per_sequence = pages,
             .kv_dtype = DType::bf16,
             .activations = DType::bf16},
            std::vector<const KernelCatalog*>(kRanks, &backend_.catalog()),
            topology_,
            {},
            RankDegrees{.tp = kRanks, .ep = kRanks}};
  }
  static Batch prompt(int64_t tokens) {
    const std::vector<int32_t> ids(static_cast<size_t>(tokens)),
        pages(static_cast<size_t>(ceil_div(tokens, kPage)));
    Batch batch(kPage);
    batch.add(ids, 0, pages, 1);
    return batch;
  }
  Seconds seconds(const char* config, const OpScheduler& strategy, int64_t tokens) const {
    const ModelShape shape = read_model_shape(std::string(BRAID_TEST_DATA "/../configs/") + config);
    BatchCut cut;
    const PlannedForward p = planner(shape, tokens).plan(strategy, prompt(tokens), cut, &model_);
    const SimulatedStep step = simulate(p, cut.works(), model_);
    Seconds s{.step = step.seconds,
              .without = simulate_without_communication(p, cut.works(), model_).seconds};
    for (size_t i = 0; i < p.schedules[0].launches.size(); ++i) {
      const Op& op = p.schedules[0].op(p.programs[0], p.schedules[0].launches[i]);
      const bool exchanges = op.tag == kSendTag || op.tag == kArrivalTag;
      const double launch = step.times[0][i].seconds();
      if (exchanges) s.exchange += launch;
      if (communicates(op) && !exchanges) s.other += launch;
      if (op.scope.ends_with(".shared")) s.shared += launch;
    }
    return s;
  }

  const NullBackend backend_;
  const Topology topology_{.machines = 1, .devices = kRanks};
  const CostModel model_{load_profile("h200"), topology_};
};

TEST_F(ExpertOverlap, SboHidesTheExchangeBehindSharedExperts) {
  const Seconds one = seconds("deepseek-v2-lite.json", OneStream(), 8192);
  const Seconds sbo = seconds("deepseek-v2-lite.json", *find_strategy("sbo"), 8192);
  EXPECT_GT(one.exchange, 0);
  EXPECT_GE(one.step - sbo.step, 0.8 * std::min(one.exchange, one.shared));
}

// What dbo cannot hide is the communication around attention, which is one batch.
TEST_F(ExpertOverlap, DboHidesTheExchangeBehindTheOtherHalf) {
  for (const char* config : {"deepseek-v2-lite.json", "qwen3-30b-a3b.json"}) {
    const Seconds dbo = seconds(config, *find_strategy("dbo"), 8192);
    const double one_by_one = dbo.without + dbo.exchange + dbo.other;
    EXPECT_GE(one_by_one - dbo.step, 0.8 * dbo.exchange) << config;
  }
}

// Joined ops cost the longer of products and transfers, on one stream.
TEST_F(ExpertOverlap, JoinedOpsHideTheExchangeOnOneStream) {
  const testing_schedule::JoinedHalves joined, apart(false);
  const Seconds one = seconds("deepseek-v2-lite.json", apart, 8192);
  const double hidden = one.step - seconds("deepseek-v2-lite.json", joined, 8192).step;
  EXPECT_GT(hidden, 0.25 * one.exchange) << "a push of each half under products";
}

TEST_F(ExpertOverlap, AutoTakesSboForPromptsAndSequentialForFewTokens) {
  const ModelShape shape = read_model_shape(BRAID_TEST_DATA "/../configs/deepseek-v2-lite.json");
  StrategyChoice::Strategies strategies;
  const std::vector<std::string> names = strategy_names(ProgramKind::experts);
  for (const std::string& name : names) strategies.push_back(find_strategy(name));
  for (const auto& [tokens, want] :
       {std::pair<int64_t, const char*>{8192, "sbo"}, {4, "sequential"}}) {
    const ForwardPlanner plans = planner(shape, tokens);
    StrategyChoice choice(plans, model_, strategies);
    EXPECT_EQ(names[static_cast<size_t>(choice.choose(prompt(tokens)))], want) << tokens;
  }
}

StepPlans planned_alone(const char* config, const char* schedule) {
  return StepPlans({.config = std::string(BRAID_TEST_DATA "/../configs/") + config,
                    .schedule = schedule,
                    .profile = "h100",
                    .tokens = 0,
                    .decodes = 1,
                    .depth = 1024});
}

// A GPU alone exchanges nothing: its shared experts run beside the router on a stream of their own.
TEST(SharedExperts, OfAGpuAloneRunBesideTheRouter) {
  const StepPlans plans = planned_alone("deepseek-v2-lite.json", "sbo");
  const SimulatedPlan& sbo = plans.chosen();
  int beside = 0;
  for (const Launch& launch : sbo.schedule().launches) {
    const Op& op = sbo.schedule().op(sbo.planned.programs[0], launch);
    const bool shared = op.scope.ends_with(".shared");
    EXPECT_EQ(launch.stream == Stream::side, shared) << op.scope;
    beside += shared;
  }
  EXPECT_EQ(beside, 2 * 26);
  EXPECT_LT(sbo.step.seconds, 0.97 * plans.sequential().step.seconds);
}

// Each group of ranks has such a step, and rows of all groups cross to their experts.
TEST(PlannedGroups, EachHaveTheStepOfOne) {
  const auto planned = [](int tp, int dp, int ep, int64_t decodes) {
    return StepPlans({.config = BRAID_TEST_DATA "/../configs/deepseek-v2-lite.json",
                      .tokens = 64,
                      .decodes = decodes,
                      .tp = tp,
                      .dp = dp,
                      .ep = ep,
                      .compare = false});
  };
  const StepPlans four = planned(1, 4, 4, 8);
  EXPECT_EQ(four.ranks(), 4);
  ASSERT_EQ(four.chosen().works.size(), 1u);
  EXPECT_EQ(four.chosen().works[0].extents.token, 72);
  EXPECT_EQ(four.chosen().works[0].extents.row, 4 * 9) << "of all groups";
  EXPECT_GT(four.chosen().wire_bytes(), 0);
  EXPECT_GT(planned(1, 4, 4, 72).chosen().wire_bytes(), four.chosen().wire_bytes());
  EXPECT_EQ(planned(2, 2, 4, 8).chosen().works[0].extents.row, 2 * 9);
  EXPECT_THROW(planned(1, 0, 1, 8), Error);
  EXPECT_THROW(planned(4, 257, 1, 8), Error);
}

}  // namespace
}  // namespace braid
