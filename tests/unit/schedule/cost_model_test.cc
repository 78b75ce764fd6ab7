#include "braid/schedule/cost_model.h"

#include <gtest/gtest.h>

#include "braid/ops/attention.h"
#include "braid/ops/comm.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/one_sided.h"
#include "unit/schedule/planned_attention.h"
#include "unit/schedule/toy_ops.h"

namespace braid {
namespace {

constexpr int64_t kN = 64, kK = 32;

Program product(DType dtype, int64_t tokens) {
  Builder b("product", {tokens, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {tokens, kK}, BatchAxis::token});
  const ValueId w = b.weight("w", {dtype, {kN, kK}});
  const auto scope = b.scope("layers.0.mlp");
  return b.finish({ops::linear(b, x, {w})});
}

Profile profile_with(std::vector<Rate> rates) {
  Profile p = toy::seconds_profile();
  p.memory_bytes_per_second = p.total_memory_bytes_per_second = 1000;
  p.rates = std::move(rates);
  return p;
}

double seconds(const Profile& profile, const Program& program, int64_t tokens,
               Stream stream = Stream::compute) {
  return CostModel(profile, {})
      .seconds(program, program.ops[0], {.extents = {tokens, 1, 1}}, stream);
}

TEST(CostModel, RatesFollowRowsBetweenTheirPoints) {
  const Rate rate{"linear", "", Rate::Unit::flops, true, {{1, 100}, {16, 400}}};
  EXPECT_DOUBLE_EQ(rate.at(0.5), 100);
  EXPECT_DOUBLE_EQ(rate.at(1), 100);
  EXPECT_DOUBLE_EQ(rate.at(4), 200) << "half way in logarithms";
  EXPECT_DOUBLE_EQ(rate.at(16), 400);
  EXPECT_DOUBLE_EQ(rate.at(1000), 400);
  // Capacity is not what counts.
  const Program program = product(DType::f32, 16);
  const Profile profile = profile_with({rate});
  EXPECT_DOUBLE_EQ(seconds(profile, program, 4), 2.0 * 4 * kN * kK / 200);
  EXPECT_DOUBLE_EQ(seconds(profile, program, 16), 2.0 * 16 * kN * kK / 400);
}

// What a pull asks a host for takes its time, whatever is moved; a push is a kernel's work.
TEST(CostModel, APullWaitsForItsAnswer) {
  Profile profile = load_profile("h200");
  const auto seconds = [&](SpMode mode, const OpDef& def, double asked) {
    profile.pull_seconds = asked;
    const PlannedAttention planned = planned_attention({.mode = mode, .stages = true});
    const Program& program = planned.programs[0];
    const auto op = std::ranges::find(program.ops, &def, &Op::def);
    return CostModel(profile, planned.mesh.topology)
        .seconds(program, *op, {.extents = {.sequence = 1}});
  };
  EXPECT_NEAR(seconds(SpMode::ring, ops::kPull, 2e-5) - seconds(SpMode::ring, ops::kPull, 0), 2e-5,
              1e-12);
  EXPECT_EQ(seconds(SpMode::ulysses, ops::kPush, 2e-5), seconds(SpMode::ulysses, ops::kPush, 0));
}

TEST(CostModel, TheDtypeOfTheWeightPicksTheRate) {
  const Profile profile = profile_with({{"linear", "q4_1", Rate::Unit::flops, true, {{1, 500}}},
                                        {"linear", "", Rate::Unit::flops, true, {{1, 100}}}});
  const double flops = 2.0 * kN * kK;
  EXPECT_DOUBLE_EQ(seconds(profile, product(DType::q4_1, 1), 1), flops / 500);
  EXPECT_DOUBLE_EQ(seconds(profile, product(DType::f16, 1), 1), flops / 100);
  EXPECT_DOUBLE_EQ(seconds(profile_with({}), product(DType::q8_0, 1), 1),
                   (kN * kK / 32 * 34 + 4.0 * (kN + kK)) / 1000)
      << "no rate: what memory takes";
}

TEST(CostModel, TheHeadDimOfDenseAttentionPicksTheRate) {
  const Profile profile =
      profile_with({{"attention", "", Rate::Unit::flops, true, {{1, 100}}},
                    {"attention", "", Rate::Unit::flops, true, {{1, 400}}, 1, 16}});
  const auto attention = [&](int64_t head_dim) {
    Builder b("attention", {1, 1, 1});
    const ValueId x = b.input("x", {DType::f32, {4, 32}});
    return seconds(profile,
                   b.finish(ops::dense_attention(b, {.q = {x}, .k = {x}, .v = {x}},
                                                 {.head_dim = head_dim, .batch = 1, .scale = 1})),
                   1);
  };
  EXPECT_DOUBLE_EQ(attention(8), 4 * attention(16)) << "as many operations";
}

TEST(CostModel, MemoryBoundsARateOfComputationAlone) {
  const auto profile = [](bool includes) {
    return profile_with({{"linear", "", Rate::Unit::flops, includes, {{1, 1e9}}}});
  };
  const Program program = product(DType::f32, 1);
  const double memory = 4.0 * (kN * kK + kN + kK) / 1000, compute = 2.0 * kN * kK / 1e9;
  EXPECT_DOUBLE_EQ(seconds(profile(false), program, 1), memory);
  EXPECT_DOUBLE_EQ(seconds(profile(true), program, 1), compute);
}

TEST(CostModel, AStreamWithFewerUnitsIsSlower) {
  Profile profile = profile_with({{"linear", "", Rate::Unit::flops, true, {{1, 100}}}});
  profile.units = 4;
  profile.stream_units = {4, 1, 1};
  const Program program = product(DType::f32, 1);
  EXPECT_DOUBLE_EQ(seconds(profile, program, 1, Stream::side),
                   4 * seconds(profile, program, 1, Stream::compute));
}

TEST(CostModel, AttentionIsPricedByPairsAndReuse) {
  Builder b("attention", {8, 1, 1});
  const ValueId q = b.input("q", {DType::f32, {8, 2 * 16}, BatchAxis::token});
  const ValueType cache = {DType::f16, {4, 16, 1, 16}};
  const ops::KvCache kv = {b.state("k", cache), b.state("v", cache)};
  const ops::AttentionMeta meta = {
      .slots = b.input("slots", {DType::i32, {8}, BatchAxis::token}),
      .q_start = b.input("q_start", {DType::i32, {2}, BatchAxis::sequence}),
      .kv_len = b.input("kv_len", {DType::i32, {1}, BatchAxis::sequence}),
      .page_table = b.input("page_table", {DType::i32, {1, 4}, BatchAxis::sequence})};
  const Program program =
      b.finish({ops::attention(b, q, kv, meta, {.head_dim = 16, .group = 2, .scale = 1})});
  const CostModel model(
      profile_with({{"attention", "f16", Rate::Unit::flops, true, {{1, 10}, {4, 20}}}}), {});
  const auto price = [&](int64_t tokens, int64_t attended, int64_t keys) {
    return model.seconds(program, program.ops[0],
                         {.extents = {tokens, 1, 1}, .attended = attended, .kv_tokens = keys});
  };
  EXPECT_DOUBLE_EQ(price(1, 40, 40), 4.0 * 2 * 16 * 40 / 10);
  EXPECT_DOUBLE_EQ(price(8, 160, 40), 4.0 * 2 * 16 * 160 / 20);
}

// all_reduce of f32 [tokens, 16] over P ranks.
Program sum_of(int64_t tokens, int P) {
  Builder b("sum", {tokens, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {tokens, 16}, BatchAxis::token});
  return b.finish({b.op1(ops::kAllReduce, Attrs::of(ops::CommAttrs{"tp", P}), {x})});
}

TEST(CostModel, AllReduceTakesTheCheaperAlgorithm) {
  Profile profile = toy::seconds_profile();
  profile.machine_link = {100, 10, false};
  const CostModel model(profile, toy::machine_of(4));
  const auto price = [&](int64_t tokens) {
    const Program program = sum_of(tokens, 4);
    return model.price(program, program.ops[0], {.extents = {tokens, 1, 1}});
  };
  // 64 bytes: 10 + 3 * 0.64 in one shot, 20 + 1.5 * 0.64 in two.
  EXPECT_DOUBLE_EQ(price(1).seconds(), 10 + 1.92);
  // 64000 bytes: 10 + 1920 or 20 + 960.
  EXPECT_DOUBLE_EQ(price(1000).seconds(), 20 + 960);
  EXPECT_DOUBLE_EQ(price(1000).work.wire_bytes, 96000) << "the analytic volume, as counted";
}

TEST(CostModel, TheTopologysLinksGoBeforeTheProfiles) {
  Profile profile = toy::seconds_profile();
  profile.machine_link = {100, 10, false};
  Topology topology = toy::machine_of(2);
  topology.machine_link = {50, 1};
  const Program program = sum_of(1, 2);
  EXPECT_DOUBLE_EQ(
      CostModel(profile, topology).seconds(program, program.ops[0], {.extents = {1, 1, 1}}),
      1 + 64.0 / 50);
}

TEST(CostModel, FusedOpsAreNeverWorseThanTheirPartsInTurn) {
  LaunchCost cost{.compute = 8, .machine = 4, .tiles = 8};
  EXPECT_DOUBLE_EQ(cost.pipelined(), 8.5);
  cost.machine = 16;
  EXPECT_DOUBLE_EQ(cost.pipelined(), 17);
  cost.tiles = 1;  // one after the other
  EXPECT_DOUBLE_EQ(cost.pipelined(), 24);
  cost.tiles = 0;  // not fused
  EXPECT_DOUBLE_EQ(cost.pipelined(), 16);
}

TEST(CostModel, ExplainsAnOpInOneLine) {
  const Profile profile =
      profile_with({{"linear", "q4_1", Rate::Unit::flops, true, {{1, 4096000}}}});
  const Program program = product(DType::q4_1, 8);
  EXPECT_EQ(CostModel(profile, {}).explain(program, program.ops[0], {.extents = {8, 1, 1}}),
            "linear layers.0.mlp q4_1: 32.77 kFLOP, 4.352 kB, 0 B wire, 8 rows: compute 8000 us");
}

}  // namespace
}  // namespace braid
