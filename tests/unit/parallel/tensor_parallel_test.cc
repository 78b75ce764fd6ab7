#include "braid/parallel/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "braid/ops/attention.h"
#include "braid/ops/comm.h"
#include "braid/ops/embedding.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/parallel/lowering.h"

namespace braid {
namespace {

using testing::HasSubstr;

struct Sizes {
  int64_t Hq = 9, Hkv = 3, D = 64, C = 576, F = 1536, V = 1001;
  DType dtype = DType::q4_1;
  bool normed = false;  // q and k over all heads at once, and what is between up and down
};

// One layer without the usual norms and RoPE: enough to be divided.
Program layer(const Sizes& s) {
  Builder b("t", {8, 2, 2});
  const ValueId ids = b.input("ids", {DType::i32, {8}, BatchAxis::token});
  const ops::AttentionMeta meta = {b.input("slots", {DType::i32, {8}, BatchAxis::token}),
                                   b.input("q_start", {DType::i32, {3}}),
                                   b.input("kv_len", {DType::i32, {2}, BatchAxis::sequence}),
                                   b.input("pages", {DType::i32, {2, 4}, BatchAxis::sequence})};
  const auto w = [&](const std::string& name, int64_t n, int64_t k) {
    return ops::LinearWeights{b.weight(name, {s.dtype, {n, k}})};
  };
  const auto normed = [&](ValueId x, const char* name) {
    const int64_t width = b.type(x).shape[1];
    return s.normed ? ops::rms_norm(b, x, b.weight(name, {DType::f32, {width}}), {.group = width})
                    : x;
  };
  ValueId x = ops::embedding(b, ids, b.weight("token_embd", {s.dtype, {s.V, s.C}}));
  {
    const auto layer_scope = b.scope("layers.0");
    const auto scope = b.scope("attn");
    const auto qkv =
        ops::linears(b, x,
                     {w("layers.0.attn.q", s.Hq * s.D, s.C), w("layers.0.attn.k", s.Hkv * s.D, s.C),
                      w("layers.0.attn.v", s.Hkv * s.D, s.C)});
    const ValueId q = normed(qkv[0], "q_norm"), k = normed(qkv[1], "k_norm");
    const ValueType cache = {DType::f16, {4, 16, s.Hkv, s.D}};
    const ops::KvCache kv = {b.state("k", cache), b.state("v", cache)};
    ops::kv_append(b, k, qkv[2], meta, kv, s.D);
    const ValueId out = ops::attention(b, q, kv, meta, {.head_dim = s.D, .group = s.Hq / s.Hkv});
    x = ops::add(b, x, ops::linear(b, out, w("layers.0.attn.o", s.C, s.Hq * s.D)));
  }
  {
    const auto scope = b.scope("layers.0.mlp");
    const auto up =
        ops::linears(b, x, {w("layers.0.mlp.gate", s.F, s.C), w("layers.0.mlp.up", s.F, s.C)});
    const ValueId y = normed(ops::gated(b, up[0], up[1], {}), "gate_norm");
    x = ops::add(b, x, ops::linear(b, y, w("layers.0.mlp.down", s.C, s.F)));
  }
  return b.finish({ops::linear(b, x, w("lm_head", s.V, s.C))});
}

std::vector<Range> parts_of(const LayoutPlan& plan, const std::string& name) {
  return plan.placement_of(name).parts;
}

TEST(TensorParallel, NineHeadsOnTwoRanksShareAKvHead) {
  const LayoutPlan plan = tensor_parallel(layer({}), 2);
  EXPECT_EQ(parts_of(plan, "layers.0.attn.q"), (std::vector<Range>{{0, 320}, {320, 576}}));
  EXPECT_EQ(parts_of(plan, "layers.0.attn.k"), (std::vector<Range>{{0, 128}, {64, 192}}));
  EXPECT_EQ(parts_of(plan, "k"), (std::vector<Range>{{0, 2}, {1, 3}}));
  EXPECT_EQ(plan.placement_of("layers.0.attn.o"), Placement::shard(1, {{0, 320}, {320, 576}}));
  EXPECT_EQ(parts_of(plan, "lm_head"), (std::vector<Range>{{0, 501}, {501, 1001}}));
  EXPECT_TRUE(plan.placement_of("token_embd").is_replicated());
}

TEST(TensorParallel, LoweringPutsInOneReductionPerBlock) {
  for (int P = 1; P <= 9; ++P) {
    SCOPED_TRACE(P);
    const Program logical = layer({});
    const std::vector<RankProgram> ranks = lower(logical, tensor_parallel(logical, P));
    ASSERT_EQ(std::ssize(ranks), P);
    int64_t heads = 0;
    for (const RankProgram& rank : ranks) {
      int reduces = 0, gathers = 0;
      for (const Op& op : rank.program.ops) {
        reduces += op.def == &ops::kAllReduce;
        gathers += op.def == &ops::kAllGather;
        if (op.def != &ops::kAttention) continue;
        const int64_t local = rank.program.value(op.inputs[0]).type.shape[1] / 64;
        const auto& a = op.attrs.as<ops::AttentionAttrs>();
        const int64_t first_kv = rank.placements[static_cast<size_t>(op.inputs[1])].is_shard()
                                     ? rank.placements[static_cast<size_t>(op.inputs[1])]
                                           .parts[static_cast<size_t>(rank.rank)]
                                           .begin
                                     : 0;
        for (int64_t h = 0; h < local; ++h) {  // every head reads the KV head of its group
          EXPECT_EQ(first_kv + (h + a.head_offset) / a.group, (heads + h) / 3);
        }
        heads += local;
      }
      EXPECT_EQ(reduces, P > 1 ? 2 : 0);
      EXPECT_EQ(gathers, P > 1 ? 1 : 0);
      EXPECT_EQ(rank.program.ops.size(), logical.ops.size() + (P > 1 ? 3 : 0));
      EXPECT_EQ(rank.program.value(rank.program.outputs[0]).type.shape, Shape({8, 1001}))
          << "logits are whole on every rank";
    }
    EXPECT_EQ(heads, 9);
  }
}

TEST(TensorParallel, WeightsAreFoundWhateverTheyAreCalled) {
  Program logical = layer({});
  const LayoutPlan plan = tensor_parallel(logical, 3);
  EXPECT_EQ(plan.pinned.size(), 10u);
  std::map<std::string, std::string> called;
  for (Value& value : logical.values) {
    if (value.kind != ValueKind::weight) continue;
    const std::string name = fmt::format("w{}", called.size());
    called[name] = value.name;
    value.name = name;
  }
  for (Op& op : logical.ops) op.scope = "";
  std::map<std::string, Placement, std::less<>> pinned;
  for (const auto& [name, placement] : tensor_parallel(logical, 3).pinned) {
    pinned[called.contains(name) ? called[name] : name] = placement;
  }
  EXPECT_EQ(pinned, plan.pinned);
}

// Projections are divided all the same; what is made on the way is gathered and cut again, k from
// parts that do not overlap to parts that do.
TEST(TensorParallel, NormsOverAllHeadsGatherThem) {
  const Program logical = layer({.normed = true});
  const LayoutPlan plan = tensor_parallel(logical, 2);
  EXPECT_EQ(parts_of(plan, "layers.0.attn.q"), (std::vector<Range>{{0, 320}, {320, 576}}));
  EXPECT_EQ(parts_of(plan, "layers.0.attn.k"), (std::vector<Range>{{0, 128}, {128, 192}}));
  EXPECT_EQ(parts_of(plan, "layers.0.attn.v"), (std::vector<Range>{{0, 128}, {64, 192}}));
  EXPECT_EQ(parts_of(tensor_parallel(logical, 4), "layers.0.attn.k"),
            (std::vector<Range>{{0, 48}, {48, 96}, {96, 144}, {144, 192}}))
      << "more ranks than heads";
  for (const RankProgram& rank : lower(logical, plan)) {
    std::vector<std::string> kinds;
    for (const Op& op : rank.program.ops) kinds.emplace_back(op.def->kind);
    EXPECT_THAT(kinds,
                testing::ElementsAre("embedding", "linear", "all_gather", "rms_norm", "all_gather",
                                     "rms_norm", "take_shard", "kv_append", "take_shard",
                                     "attention", "linear", "all_reduce", "add", "linear", "gated",
                                     "all_gather", "rms_norm", "take_shard", "linear", "all_reduce",
                                     "add", "linear", "all_gather"));
    for (const Op& op : rank.program.ops) {
      if (op.def != &ops::kAttention) continue;
      EXPECT_EQ(rank.program.value(op.inputs[0]).type.shape, Shape({8, rank.rank ? 256 : 320}));
      EXPECT_EQ(op.attrs.as<ops::AttentionAttrs>().head_offset, rank.rank ? 2 : 0);
    }
  }
}

// Of three linears in a row two are a pair, and the third is whole.
TEST(TensorParallel, ChainsOfLinearsAreDividedInPairs) {
  Builder b("t", {8, 2, 2});
  const ValueId ids = b.input("ids", {DType::i32, {8}, BatchAxis::token});
  const ValueId x = ops::embedding(b, ids, b.weight("token_embd", {DType::f32, {20, 16}}));
  ValueId y = x;
  for (const char* name : {"a", "b", "c"}) {
    const ValueId bias = b.weight(fmt::format("{}.bias", name), {DType::f32, {16}});
    y = ops::linear(b, y, {b.weight(name, {DType::f32, {16, 16}}), bias});
  }
  const Program logical = b.finish({ops::add(b, x, y)});
  const LayoutPlan plan = tensor_parallel(logical, 2);
  EXPECT_EQ(plan.pinned.size(), 3u) << to_string(plan);
  EXPECT_EQ(plan.placement_of("a"), Placement::shard(0, {{0, 8}, {8, 16}}));
  EXPECT_EQ(plan.placement_of("a.bias"), plan.placement_of("a"));
  EXPECT_EQ(plan.placement_of("b"), Placement::shard(1, {{0, 8}, {8, 16}}));
  EXPECT_EQ(lower(logical, plan)[1].program.ops.size(), logical.ops.size() + 1) << "one sum";
}

// A weight that two ops read stays whole, and ranks take their part of what it makes.
TEST(TensorParallel, SharedWeightsAreWhole) {
  Program logical = layer({});
  const ValueId k = *logical.find("layers.0.attn.k");
  for (Op& op : logical.ops) {
    std::ranges::replace(op.inputs, *logical.find("layers.0.attn.v"), k);
  }
  const LayoutPlan plan = tensor_parallel(logical, 2);
  EXPECT_TRUE(plan.placement_of("layers.0.attn.k").is_replicated());
  const RankProgram rank = lower(logical, plan)[1];
  EXPECT_EQ(std::ranges::count(rank.program.ops, &ops::kTakeShard, &Op::def), 2);
}

TEST(TensorParallel, CutsFollowQuantizationBlocks) {
  // Four heads of 64 make one block of 256: 32 query heads are 8 units.
  const Sizes sizes = {.Hq = 32, .Hkv = 8, .C = 2048, .F = 5632, .V = 512, .dtype = DType::q4_k};
  const LayoutPlan plan = tensor_parallel(layer(sizes), 3);
  for (const Range& part : parts_of(plan, "layers.0.attn.o")) {
    EXPECT_EQ(part.begin % 256, 0);
    EXPECT_EQ(part.end % 256, 0);
  }
  for (const Range& part : parts_of(plan, "layers.0.mlp.down")) EXPECT_EQ(part.begin % 256, 0);
}

TEST(TensorParallel, TooManyRanksAreRefusedWithTheLimit) {
  try {
    tensor_parallel(layer({}), 100);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("9 query heads"));
    EXPECT_THAT(e.what(), HasSubstr("at most 9 parts"));
  }
}

TEST(Lowering, RefusesAWeightWhereNoRuleCanUseIt) {
  const Program logical = layer({});
  LayoutPlan plan{.axis = "tp", .P = 2, .pinned = {}};
  plan.pinned["token_embd"] = Placement::shard(1, {{0, 288}, {288, 576}});
  EXPECT_THROW(lower(logical, plan), Error);
}

}  // namespace
}  // namespace braid
