// In simulation sbo and dbo hide the exchange of expert rows, and `auto` takes them where they pay.
#include <gtest/gtest.h>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/strategy_choice.h"
#include "braid/model/model_shape.h"
#include "braid/parallel/experts/exchange.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"

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

}  // namespace
}  // namespace braid
