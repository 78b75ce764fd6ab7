// Schedules as data: made for all ranks at once, printed, compared.
#include "braid/schedule/plan_schedules.h"

#include "braid/ops/fused_comm.h"
#include "braid/ops/linear.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/schedule/planned_decoder.h"

namespace braid::testing_schedule {
namespace {

TEST(Plan, RanksRunTheSameLaunchesOnOneMemoryPlan) {
  for (int P = 2; P <= 4; ++P) {  // 9 heads: uneven parts
    const Planned plan = planned(three_streams(), {.ranks = P, .micro_batches = 2});
    for (const Schedule& s : plan.schedules) {
      EXPECT_EQ(s.memory.value_offset, plan.schedules[0].memory.value_offset);
      EXPECT_EQ(s.memory.workspace_offset, plan.schedules[0].memory.workspace_offset);
      EXPECT_EQ(s.memory.arena_bytes, plan.schedules[0].memory.arena_bytes);
      ASSERT_EQ(s.launches.size(), plan.schedules[0].launches.size());
      for (size_t i = 0; i < s.launches.size(); ++i) {
        EXPECT_EQ(s.launches[i].op, plan.schedules[0].launches[i].op);
        EXPECT_EQ(s.launches[i].waits, plan.schedules[0].launches[i].waits);
      }
    }
  }
}

TEST(Plan, ReplacementsAreEachRanksOwn) {
  const Planned plan = planned(*find_strategy("gemm_collective"), {.ranks = 3});
  for (size_t r = 0; r < plan.schedules.size(); ++r) {
    const Schedule& s = plan.schedules[r];
    EXPECT_EQ(s.replacements.size(), 4u) << "two sums in each of two layers";
    for (const Launch& l : s.launches) {
      if (l.replacement < 0) continue;
      const Op& fused = s.op(plan.programs[r], l);
      ASSERT_EQ(fused.def, &ops::kLinearAllReduce);
      ASSERT_EQ(l.num_ops, 2);
      const Op* replaced = &plan.programs[r].ops[static_cast<size_t>(l.op)];
      EXPECT_EQ(fused.inputs, replaced[0].inputs);
      EXPECT_EQ(fused.outputs, replaced[1].outputs);
      EXPECT_EQ(fused.attrs.as<ops::LinearAllReduceAttrs>().bias_elsewhere,
                replaced[0].attrs.as<ops::LinearAttrs>().bias_elsewhere);
    }
  }
}

TEST(Plan, KernelsAreThoseOfTheLaunchsStream) {
  struct ByStream : KernelCatalog {
    KernelInfo find(const Program&, const Op& op, Stream stream, const Extents&) const override {
      return {fmt::format("{}.{}", op.def->kind, to_string(stream)), 64};
    }
  } catalog;
  const Program program = decoder({8, 2, 2});
  const Schedule s = schedule_of(program, three_streams(), catalog, {{program.capacity}});
  for (const Launch& l : s.launches) {
    EXPECT_EQ(l.kernel.name, fmt::format("{}.{}", s.op(program, l).def->kind, to_string(l.stream)));
  }
}

// Scratch and kernels are those of the rows that a launch can have.
TEST(Plan, KernelsAreThoseOfTheLaunchsCapacity) {
  struct ByTokens : KernelCatalog {
    KernelInfo find(const Program&, const Op&, Stream, const Extents& capacity) const override {
      return {fmt::format("{} tokens", capacity.token), 64};
    }
  } catalog;
  const Program program = decoder({12, 2, 2});
  const Schedule s = schedule_of(program, merging(), catalog, {{{8, 1, 1}}, {{4, 1, 1}}});
  for (const Launch& l : s.launches) {
    const int64_t tokens = l.num_micro_batches == 2 ? 12 : l.micro_batch == 0 ? 8 : 4;
    EXPECT_EQ(l.kernel.name, fmt::format("{} tokens", tokens));
  }
}

// Where the tokens are divided over ranks a part of the batch has its part of them.
TEST(Plan, ShardsOfMicroBatchesAreEvenUnlessSaid) {
  const Planned said = planned(three_streams(), {.ranks = 3, .micro_batches = 2, .sharded = true});
  std::vector<MicroBatch> unsaid = said.micro_batches;
  for (MicroBatch& mb : unsaid) mb.capacity.shard = 0;
  const ScratchCatalog catalog;
  Plan plan{said.programs, {}};
  plan_schedules(
      plan, three_streams(),
      {.catalogs = {&catalog}, .micro_batches = unsaid, .topology = {.devices = 3}, .price = {}});
  for (const Schedule& schedule : plan.schedules)
    EXPECT_EQ(schedule.micro_batches, said.micro_batches);
}

TEST(Plan, PricesReachTheStrategy) {
  Plan plan{{decoder({8, 2, 2})}, {}};
  const ScratchCatalog catalog;
  double seen = 0;
  const TestStrategy asks = strategy([&](ScheduleContext& ctx) {
    seen = ctx.estimate(ctx.ready(0)[0]);
    ctx.execute(ctx.ready(0));
  });
  plan_schedules(plan, asks,
                 {.catalogs = {&catalog},
                  .micro_batches = {{plan.programs[0].capacity}},
                  .topology = {},
                  .price = [](const Op& op, int) { return op.def->kind == "linear" ? 2.0 : 0.0; }});
  EXPECT_EQ(seen, 2.0 * 9) << "four products a layer, and lm_head";
}

TEST(Schedule, PrintsALineForEachLaunch) {
  const Planned plan = planned(three_streams(), {.ranks = 2, .micro_batches = 2});
  const std::string text = to_string(plan.schedules[0], plan.programs[0]);
  EXPECT_EQ(std::ranges::count(text, '\n'), std::ssize(plan.schedules[0].launches) + 2);
  EXPECT_THAT(text, testing::HasSubstr("2 micro-batches (tokens 12 12 continuing)"));
  EXPECT_THAT(text, testing::HasSubstr("layers.1.attn after "));
  EXPECT_THAT(text, testing::HasSubstr("arena "));
}

TEST(Schedule, HashesTellApartWhatDiffers) {
  const Planned plan =
      planned(*find_strategy("tokenweave"), {.ranks = 2, .micro_batches = 2, .sharded = true});
  const Schedule& good = plan.schedules[0];
  ASSERT_FALSE(good.replacements.empty());
  const auto i = static_cast<size_t>(plan.find("gated_linear"));
  std::vector<std::pair<const char*, std::function<void(Schedule&)>>> changes = {
      {"strategy", [](Schedule& s) { s.strategy = "other"; }},
      {"capacity", [](Schedule& s) { s.micro_batches[1].capacity.row += 1; }},
      {"continues", [](Schedule& s) { s.micro_batches[1].continues ^= true; }},
      {"fewer micro-batches", [](Schedule& s) { s.micro_batches.pop_back(); }},
      {"replacement", [](Schedule& s) { s.replacements[0].def = &ops::kLinearAllReduce; }},
      {"op", [&](Schedule& s) { s.launches[i].op += 1; }},
      {"ops", [&](Schedule& s) { s.launches[i].num_ops += 1; }},
      {"replaced", [&](Schedule& s) { s.launches[i].replacement = 0; }},
      {"micro-batch", [&](Schedule& s) { s.launches[i].micro_batch ^= 1; }},
      {"merged launch", [&](Schedule& s) { s.launches[i].num_micro_batches += 1; }},
      {"stream", [&](Schedule& s) { s.launches[i].stream = Stream::side; }},
      {"wait", [&](Schedule& s) { s.launches[i].waits.push_back({0}); }},
      {"wait inside",
       [&](Schedule& s) {
         s.launches[i].waits.push_back({0, 1});
       }},
      {"result parts",
       [&](Schedule& s) {
         s.launches[i].waits.push_back({0, 0, 0});
       }},
      {"order", [&](Schedule& s) { std::swap(s.launches[i], s.launches[i - 1]); }},
      {"dropped", [&](Schedule& s) { s.launches.pop_back(); }},
      {"offset", [](Schedule& s) { s.memory.value_offset[0] += 64; }},
      {"merged value", [](Schedule& s) { s.memory.merged[0] = !s.memory.merged[0]; }},
      {"scratch", [](Schedule& s) { s.memory.workspace_offset[0] += 64; }},
  };
  for (const auto& [what, change] : changes) {
    Schedule other = good;
    change(other);
    EXPECT_NE(hash_of(other), hash_of(good)) << what;
  }
  EXPECT_EQ(hash_of(Schedule(good)), hash_of(good));
}

}  // namespace
}  // namespace braid::testing_schedule
