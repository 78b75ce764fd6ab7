// A residual stream that is divided over tokens: what the lowering puts in, and where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/ops/comm.h"
#include "braid/ops/embedding.h"
#include "braid/ops/fusion.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/parallel/lowering.h"
#include "braid/parallel/tensor_parallel.h"
#include "unit/parallel/decoder_program.h"

namespace braid {
namespace {

using testing::ElementsAre;

using testing_decoder::decoder;

LayoutPlan token_sharded(const Program& program, int P) {
  LayoutPlan plan = tensor_parallel(program, P);
  plan.token_sharded_residual = true;
  return plan;
}

std::vector<std::string> kinds(const Program& program) {
  std::vector<std::string> result;
  for (const Op& op : program.ops) result.emplace_back(op.def->kind);
  return result;
}

int count(const Program& program, const OpDef& def) {
  return static_cast<int>(
      std::ranges::count_if(program.ops, [&](const Op& op) { return op.def == &def; }));
}

const Value& made_by(const Program& program, const OpDef& def) {
  const auto op = std::ranges::find_if(program.ops, [&](const Op& o) { return o.def == &def; });
  return program.value(op->outputs.at(0));
}

TEST(TokenSharded, OneLayerOpByOp) {
  const Program logical = decoder(7, 1);
  const auto ranks = lower(logical, token_sharded(logical, 2));
  for (const RankProgram& rank : ranks) {
    EXPECT_THAT(
        kinds(rank.program),
        ElementsAre("embedding", "rms_norm", "linear", "rope", "rope", "kv_append", "attention",
                    "linear", "take_shard", "reduce_scatter", "add", "rms_norm", "all_gather",
                    "linear", "gated", "linear", "reduce_scatter", "add", "all_gather",
                    "gather_rows", "rms_norm", "linear", "all_gather"));
    const Program& p = rank.program;
    EXPECT_EQ(p.capacity.shard, 4);
    for (const OpDef* def : {&ops::kTakeShard, &ops::kReduceScatter, &ops::kAdd}) {
      EXPECT_EQ(to_string(made_by(p, *def).type), "f32[shard=4, 128]") << def->kind;
    }
    EXPECT_EQ(to_string(made_by(p, ops::kAllGather).type), "f32[token=7, 128]");
    EXPECT_EQ(to_string(made_by(p, ops::kEmbedding).type), "f32[token=7, 128]");
    EXPECT_EQ(to_string(p.value(p.outputs[0]).type), "f32[row=3, 100]");
    const auto take =
        std::ranges::find_if(p.ops, [](const Op& op) { return op.def == &ops::kTakeShard; });
    EXPECT_EQ(take->attrs.as<ops::TakeShardAttrs>().rank, rank.rank);
    const auto placement = rank.placements[static_cast<size_t>(take->outputs[0])];
    EXPECT_EQ(placement, Placement::shard(0, {{0, 4}, {4, 7}}));
    for (const Op& op : p.ops) {
      if (op.def != &ops::kReduceScatter) continue;
      EXPECT_THAT(op.scope, testing::StartsWith("layers.0."));
    }
  }
}

TEST(TokenSharded, EveryRankCommunicatesAlike) {
  constexpr int kLayers = 3;
  for (int P = 1; P <= 4; ++P) {
    for (int64_t T : {1, 3, 8, 64}) {
      SCOPED_TRACE(testing::Message() << P << " ranks, " << T << " tokens");
      const Program logical = decoder(T, kLayers);
      const auto ranks = lower(logical, token_sharded(logical, P));
      ASSERT_EQ(std::ssize(ranks), P);
      const int blocks = P == 1 ? 0 : 2 * kLayers;
      for (const RankProgram& rank : ranks) {
        const Program& p = rank.program;
        EXPECT_EQ(kinds(p), kinds(ranks[0].program));
        EXPECT_EQ(count(p, ops::kAllReduce), 0);
        EXPECT_EQ(count(p, ops::kReduceScatter), blocks);
        EXPECT_EQ(count(p, ops::kTakeShard), blocks ? 1 : 0);
        // The normed values, the last residual and the logits.
        EXPECT_EQ(count(p, ops::kAllGather), blocks ? blocks + 1 : 0);
        EXPECT_EQ(p.ops.size(),
                  logical.ops.size() + static_cast<size_t>(blocks ? 2 * blocks + 2 : 0));
        for (const Value& value : p.values) {
          if (value.type.axis != BatchAxis::shard) continue;
          EXPECT_EQ(value.type.shape[0], ceil_div(T, P));
        }
      }
    }
  }
}

TEST(TokenSharded, ReplicatedPlansAreAsBefore) {
  const Program logical = decoder(7, 2);
  const LayoutPlan plan = tensor_parallel(logical, 2);
  EXPECT_FALSE(plan.token_sharded_residual);
  for (const RankProgram& rank : lower(logical, plan)) {
    EXPECT_EQ(count(rank.program, ops::kAllReduce), 4);
    EXPECT_EQ(count(rank.program, ops::kAllGather), 1) << "the logits";
    EXPECT_EQ(rank.program.capacity, logical.capacity);
    EXPECT_EQ(rank.program.ops.size(), logical.ops.size() + 5);
  }
}

// The wire carries the same either way.
TEST(TokenSharded, CostsTheSameOnTheWire) {
  const Program logical = decoder(64, 2);
  const Work work{.extents = {.token = 64, .sequence = 2, .row = 3, .shard = 16}};
  const auto wire = [&](const LayoutPlan& plan) {
    double bytes = 0;
    const auto ranks = lower(logical, plan);
    for (const Op& op : ranks[0].program.ops) bytes += ranks[0].program.cost(op, work).wire_bytes;
    return bytes;
  };
  const double replicated = wire(tensor_parallel(logical, 4));
  EXPECT_GT(replicated, 0);
  EXPECT_EQ(wire(token_sharded(logical, 4)), replicated);
}

// After the fusions that always apply, strategies find what they replace.
TEST(TokenSharded, ReplacementsFitTheLoweredProgram) {
  const Program logical = decoder(7, 2);
  const auto replace_all = [&](const LayoutPlan& plan, std::string_view name) {
    const Program fused = fuse(lower(logical, plan)[1].program, fusions());
    return fuse(fused, {find_replacement(name), 1});
  };
  const auto number_of = [](const Program& program, std::string_view kind) {
    return std::ranges::count_if(program.ops, [&](const Op& op) { return op.def->kind == kind; });
  };
  const LayoutPlan whole = tensor_parallel(logical, 2), parts = token_sharded(logical, 2);
  constexpr std::string_view kParts = "reduce_scatter_add_rms_norm_all_gather";
  // The last residual is not normalized before its rows are gathered.
  EXPECT_EQ(number_of(replace_all(parts, kParts), kParts), 3);
  EXPECT_EQ(number_of(replace_all(whole, "all_reduce_add_rms_norm"), "all_reduce_add_rms_norm"), 3);
  EXPECT_EQ(number_of(replace_all(whole, "linear_all_reduce"), "linear_all_reduce"), 4);
  EXPECT_EQ(number_of(replace_all(parts, "linear_all_reduce"), "linear_all_reduce"), 0);
}

// x [T, 32] as a partial sum.
struct PartialSum {
  explicit PartialSum(BatchAxis axis = BatchAxis::token) {
    const ValueId in = b.input("in", {DType::f32, {8, 16}, axis});
    const auto w = [&](const char* name, int64_t n, int64_t k) {
      return ops::LinearWeights{b.weight(name, {DType::f32, {n, k}})};
    };
    x = ops::linear(b, ops::linear(b, in, w("w_in", 64, 16)), w("w_x", 32, 64));
  }

  ValueId up(ValueId value) {
    return ops::linear(b, value, {b.weight("w_up", {DType::f32, {20, 32}})});
  }
  ValueId norm(ValueId value) {
    return ops::rms_norm(b, value, b.weight("norm", {DType::f32, {32}}), {.group = 32});
  }
  Program lowered(const std::vector<ValueId>& outputs) {
    LayoutPlan plan{.axis = "tp", .P = 2, .pinned = {}, .token_sharded_residual = true};
    plan.pinned["w_in"] = Placement::shard(0, {{0, 32}, {32, 64}});
    plan.pinned["w_x"] = Placement::shard(1, {{0, 32}, {32, 64}});
    plan.pinned["w_up"] = Placement::shard(0, {{0, 10}, {10, 20}});
    return lower(b.finish(outputs), plan)[1].program;
  }

  Builder b{"t", {.token = 8, .sequence = 1, .row = 8}};
  ValueId x;
};

TEST(TokenSharded, ASumIsMadeOnceForAllItsReaders) {
  PartialSum t;
  const ValueId y = t.up(t.norm(t.x));
  const ValueId z = t.up(t.x);  // read whole after it was divided
  const Program p = t.lowered({y, z, ops::add(t.b, t.x, t.x)});
  EXPECT_EQ(count(p, ops::kReduceScatter), 1);
  EXPECT_EQ(count(p, ops::kAllReduce), 1) << "the sum of sums, an output";
  EXPECT_EQ(count(p, ops::kAllGather), 4) << "the norm, x from its parts, two outputs";
}

TEST(TokenSharded, ASumNeededWholeFirstIsReducedWhole) {
  PartialSum t;
  const ValueId z = t.up(t.x);
  EXPECT_THAT(kinds(t.lowered({z, t.norm(t.x)})),
              ElementsAre("linear", "linear", "all_reduce", "linear", "rms_norm", "all_gather"));
}

// Rows of logits are no tokens: their sums are reduced whole.
TEST(TokenSharded, OtherBatchAxesAreNotDivided) {
  PartialSum t(BatchAxis::row);
  EXPECT_THAT(kinds(t.lowered({t.norm(t.x)})),
              ElementsAre("linear", "linear", "all_reduce", "rms_norm"));
}

// A rank's tokens meet whole weights; they do not meet a rank's rows of a divided one.
TEST(TokenSharded, WholeWeightsTakeDividedTokens) {
  PartialSum t;
  const ValueId w = t.b.weight("w_whole", {DType::f32, {24, 32}});
  const Program p = t.lowered({ops::linear(t.b, t.norm(t.x), {w})});
  EXPECT_THAT(kinds(p), ElementsAre("linear", "linear", "reduce_scatter", "rms_norm", "linear",
                                    "all_gather"));
  EXPECT_EQ(to_string(made_by(p, ops::kReduceScatter).type), "f32[shard=4, 32]");
}

// Where the next weight is divided by its columns they are gathered and cut.
TEST(TokenSharded, TokensBecomeColumns) {
  PartialSum t;
  const ValueId y = ops::linear(t.b, t.norm(t.x),
                                ops::LinearWeights{t.b.weight("w_out", {DType::f32, {24, 32}})});
  LayoutPlan plan{.axis = "tp", .P = 2, .pinned = {}, .token_sharded_residual = true};
  plan.pinned["w_in"] = Placement::shard(0, {{0, 32}, {32, 64}});
  plan.pinned["w_x"] = Placement::shard(1, {{0, 32}, {32, 64}});
  plan.pinned["w_out"] = Placement::shard(1, {{0, 20}, {20, 32}});
  const Program p = lower(t.b.finish({y}), plan)[1].program;
  EXPECT_THAT(kinds(p), ElementsAre("linear", "linear", "reduce_scatter", "rms_norm", "all_gather",
                                    "take_shard", "linear", "all_reduce"));
  EXPECT_EQ(to_string(made_by(p, ops::kTakeShard).type), "f32[token=8, 12]");
}

// A sum is not scattered over columns: it is made whole and cut.
TEST(TokenSharded, SumsBecomeColumns) {
  PartialSum t;
  const ValueId normed = t.norm(t.x);
  const ValueId columns = ops::linear(t.b, normed, {t.b.weight("w_cols", {DType::f32, {32, 32}})});
  LayoutPlan plan{.axis = "tp", .P = 2, .pinned = {}, .token_sharded_residual = true};
  plan.pinned["w_in"] = Placement::shard(0, {{0, 32}, {32, 64}});
  plan.pinned["w_x"] = Placement::shard(1, {{0, 32}, {32, 64}});
  plan.pinned["w_cols"] = Placement::shard(0, {{0, 16}, {16, 32}});
  const Program p = lower(t.b.finish({ops::add(t.b, columns, t.x)}), plan)[1].program;
  EXPECT_THAT(kinds(p), ElementsAre("linear", "linear", "reduce_scatter", "rms_norm", "all_gather",
                                    "linear", "all_gather", "take_shard", "add", "all_gather"));
}

// Columns that two ranks have are gathered from neither.
TEST(TokenSharded, RefusesWhatNoConversionGives) {
  PartialSum t;
  LayoutPlan plan{.axis = "tp", .P = 2, .pinned = {}};
  plan.pinned["w_up"] = Placement::shard(0, {{0, 12}, {8, 20}});
  const Program logical = t.b.finish({t.up(t.x)});
  try {
    lower(logical, plan);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(), testing::HasSubstr("output at '' needs a value as replicated"));
    EXPECT_THAT(e.what(), testing::HasSubstr("it is shard(1: 0..12 8..20)"));
  }
}

}  // namespace
}  // namespace braid
