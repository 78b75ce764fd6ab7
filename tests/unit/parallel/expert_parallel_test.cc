// Where experts lie, and what ranks send each other for rows that are divided.
#include "braid/parallel/experts/expert_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/ops/experts.h"
#include "braid/ops/norm.h"
#include "braid/parallel/experts/token_weights.h"
#include "braid/parallel/lowering.h"

namespace braid {
namespace {

constexpr int64_t kT = 12, kE = 5, kK = 2, kC = 32, kF = 64;

// A norm, and a mixture behind it with a shared expert.
Program mixture(DType dtype = DType::f32) {
  Builder b("mixture", {.token = kT, .sequence = 1, .row = 1, .expert_row = kT * kK});
  const ValueId in = b.input("x", {DType::f32, {kT, kC}, BatchAxis::token});
  const ValueId x = ops::rms_norm(b, in, b.weight("norm", {DType::f32, {kC}}), {1e-5f, kC});
  const auto w = [&](const char* name, const Shape& shape) {
    return ops::LinearWeights{b.weight(name, {DType::f32, shape})};
  };
  const auto expert = [&](const char* name, const Shape& shape) {
    return ops::LinearWeights{b.weight(name, {dtype, shape})};
  };
  const ValueId logits = ops::linear(b, x, w("router", {kE, kC}), DType::f32);
  const ops::Route route = ops::route(b, logits, kNoValue, {.top_k = kK});
  const auto up = ops::linears(b, x, {w("shared.gate", {kF, kC}), w("shared.up", {kF, kC})});
  const ValueId shared =
      ops::linear(b, ops::gated(b, up[0], up[1], {}), w("shared.down", {kC, kF}));
  const ValueId y = ops::experts(b, x, route,
                                 {.gate = expert("gate", {kE, kF, kC}),
                                  .up = expert("up", {kE, kF, kC}),
                                  .down = expert("down", {kE, kC, kF})},
                                 ops::Activation::silu, shared);
  return b.finish({ops::add(b, in, y)});
}

std::vector<std::string> kinds(const Program& program) {
  std::vector<std::string> all;
  for (const Op& op : program.ops) all.emplace_back(op.def->kind);
  return all;
}

TEST(ExpertParallel, GivesEachRankItsExperts) {
  const Program program = mixture();
  EXPECT_EQ(experts_of(program), kE);
  const std::vector<Range> parts = {{0, 4}, {4, 4}, {4, 5}};
  const std::vector<RankProgram> ranks = lower(program, expert_parallel(program, parts));
  for (size_t r = 0; r < 3; ++r) {
    const Program& own = ranks[r].program;
    for (const char* name : {"gate", "up", "down"}) {
      EXPECT_EQ(own.value(*own.find(name)).type.shape[0], parts[r].size());
    }
    EXPECT_LT(own.value(*own.find("shared.up")).type.shape[0], kF);
    EXPECT_EQ(own.capacity.expert_row, kT * kK);
    EXPECT_EQ(own.even_expert_rows(kT), kT * kK / 3);
    const auto all = kinds(own);
    EXPECT_EQ(std::ranges::count(all, "all_reduce"), 1) << "the sum of experts and shared experts";
    EXPECT_EQ(std::ranges::count(all, "dispatch"), 0);
  }
  EXPECT_EQ(expert_parallel(program, RankDegrees{.tp = 2}).pinned.at("up").dim, 1);
  EXPECT_EQ(expert_parallel(program, RankDegrees{.tp = 2, .ep = 2}).pinned.at("up"),
            Placement::shard(0, {{0, 3}, {3, 5}}));
}

TEST(ExpertParallel, ATokenReadsItsExpertsAlone) {
  const int64_t expert = 3 * kF * kC, shared = 3 * kF * kC;
  EXPECT_EQ(token_weight_bytes(mixture()), 4 * (kC + kE * kC + shared + kK * expert));
}

TEST(ExpertParallel, ExchangesRowsThatAreDivided) {
  const Program program = mixture();
  const LayoutPlan plan =
      with_divided_rows(expert_parallel(program, RankDegrees{.tp = 3, .ep = 3}), program);
  for (const char* name : {"shared.gate", "shared.up", "shared.down"}) {
    EXPECT_FALSE(plan.pinned.contains(name));
  }
  for (const RankProgram& rank : lower(program, plan)) {
    const auto all = kinds(rank.program);
    for (const char* kind : {"choose", "tell", "dispatch", "arrange", "return_rows"}) {
      EXPECT_EQ(std::ranges::count(all, kind), 1) << kind;
    }
    EXPECT_EQ(std::ranges::count(all, "sync"), 4);
    EXPECT_EQ(std::ranges::count(all, "all_reduce"), 0);
    // What is computed beside the exchange stands between dispatch and what waits for rows.
    const auto at = [&](const char* kind) { return std::ranges::find(all, kind) - all.begin(); };
    EXPECT_LT(at("tell"), at("gated"));
    EXPECT_LT(at("gated"), at("arrange"));
  }
}

// Three ranks in two sets: two ranks share the width of their experts, one has its experts alone.
TEST(ExpertParallel, RanksOfASetDivideTheWidthOfTheirExperts) {
  const Program program = mixture();
  const LayoutPlan plan = expert_parallel(program, RankDegrees{.tp = 3, .ep = 2});
  EXPECT_EQ(plan.experts, (std::vector<Range>{{0, 3}, {0, 3}, {3, 5}}));
  EXPECT_EQ(expert_sets(plan), 2);
  const auto ranks = lower(program, plan);
  const std::vector<Range> widths = {{0, kF / 2}, {kF / 2, kF}, {0, kF}};
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Program& own = ranks[r].program;
    const int64_t E = plan.experts[r].size(), F = widths[r].size();
    EXPECT_EQ(own.value(*own.find("up")).type.shape, (Shape{E, F, kC}));
    EXPECT_EQ(own.value(*own.find("down")).type.shape, (Shape{E, kC, F}));
    EXPECT_EQ(part_of(ranks[r].widths.at(*own.find("down")), static_cast<int>(r)), widths[r]);
    EXPECT_EQ(own.even_expert_rows(kT), kT * kK / 2);
  }
  EXPECT_EQ(expert_placement(ranks[0].program, 3),
            "5 experts over 2 sets of ranks, which divide widths, all rows on every rank");
}

TEST(ExpertParallel, RefusesWidthsWithFewerBlocksThanRanks) {
  const Program program = mixture(DType::q4_0);
  try {
    expert_parallel(program, RankDegrees{.tp = 2, .ep = 2, .groups = 3});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("3 ranks divide an expert's 64 columns, which "
                                                 "have 2 blocks"));
  }
}

// Ranks of all groups exchange rows; a group's ranks alone divide heads and shared experts.
TEST(ExpertParallel, GroupsExchangeRowsWithEachOther) {
  const Program program = mixture();
  const LayoutPlan plan =
      with_divided_rows(expert_parallel(program, RankDegrees{.ep = 4, .groups = 4}), program);
  EXPECT_FALSE(plan.token_sharded_residual);
  const auto ranks = lower(program, plan);
  ASSERT_EQ(ranks.size(), 4u);
  for (const RankProgram& rank : ranks) {
    const auto all = kinds(rank.program);
    EXPECT_EQ(std::ranges::count(all, "dispatch"), 1);
    EXPECT_EQ(std::ranges::count(all, "all_reduce") + std::ranges::count(all, "take_shard"), 0);
    EXPECT_EQ(rank.program.capacity.expert_row, 4 * kT * kK);
    EXPECT_EQ(rank.program.even_expert_rows(kT), kT * kK);
    EXPECT_EQ(rank.program.value(*rank.program.find("shared.up")).type.shape[0], kF);
  }
}

}  // namespace
}  // namespace braid
