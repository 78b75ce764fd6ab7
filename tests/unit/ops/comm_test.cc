// Communication ops and those fused with communication: shape rules, exact costs, and the table of
// replacements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/ops/comm.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/fusion.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"

namespace braid {
namespace {

using testing::Contains;
using testing::HasSubstr;

const ValueType kTokens = {DType::f32, {10, 64}, BatchAxis::token};
const ValueType kShard = {DType::f32, {4, 64}, BatchAxis::shard};  // of 3 ranks
const ValueType kWeight = {DType::f32, {64}};
constexpr int kP = 3;

Attrs comm(int P = kP) {
  return Attrs::of(ops::CommAttrs{.axis = "tp", .ranks = P});
}
Attrs gather(int64_t T, int P = kP) {
  return Attrs::of(ops::CommAttrs{"tp", P, 0, ops::token_parts(T, P)});
}
Attrs reduce_norm(int P = kP) {
  return Attrs::of(ops::ReduceNormAttrs{"tp", P, 1e-5f});
}

std::vector<ValueType> infer(const OpDef& def, const Attrs& attrs, std::vector<ValueType> in) {
  return def.infer(attrs, in);
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    return e.what();
  }
  return "no error";
}

TEST(CommShapes, PartsOfTokens) {
  EXPECT_EQ(infer(ops::kReduceScatter, comm(), {kTokens})[0], kShard);
  EXPECT_EQ(infer(ops::kTakeShard, Attrs::of(ops::TakeShardAttrs{"tp", kP, 1}), {kTokens})[0],
            kShard);
  EXPECT_EQ(infer(ops::kAllGather, gather(10), {kShard})[0], kTokens);
  // Fewer tokens than ranks: everyone has room for one.
  const ValueType two = {DType::f32, {2, 64}, BatchAxis::token};
  EXPECT_EQ(to_string(infer(ops::kReduceScatter, comm(4), {two})[0]), "f32[shard=1, 64]");
}

TEST(CommShapes, RefuseWhatIsNotDivided) {
  EXPECT_THAT(error_of([] {
                infer(ops::kReduceScatter, comm(), {{DType::f32, {10, 64}, BatchAxis::row}});
              }),
              HasSubstr("reduce_scatter: x is f32[row=10, 64], wanted the token axis"));
  EXPECT_THAT(error_of([] {
                infer(ops::kReduceScatter, comm(), {{DType::i32, {10, 64}, BatchAxis::token}});
              }),
              HasSubstr("wanted f32"));
  EXPECT_THAT(error_of([] {
                infer(ops::kReduceScatter, comm(), {{DType::f32, {10}, BatchAxis::token}});
              }),
              HasSubstr("wanted 2 dimensions"));
  EXPECT_THAT(error_of([] { infer(ops::kAllGather, gather(13), {kShard}); }),
              HasSubstr("all_gather: x is f32[shard=4, 64], not a part of f32[token=13, 64]"));
}

TEST(CommShapes, FusedOpsKeepTheTypesOfTheirParts) {
  const ValueType w = {DType::q8_0, {96, 64}}, bias = {DType::f32, {96}};
  EXPECT_EQ(
      to_string(infer(ops::kLinearAllReduce, Attrs::of(ops::LinearAllReduceAttrs{"tp", kP, true}),
                      {kTokens, w, bias})[0]),
      "f32[token=10, 96]");
  const auto whole = infer(ops::kAllReduceAddRmsNorm, reduce_norm(), {kTokens, kTokens, kWeight});
  EXPECT_EQ(whole, (std::vector<ValueType>{kTokens, kTokens}));
  const auto parts =
      infer(ops::kReduceScatterAddRmsNormAllGather, reduce_norm(), {kTokens, kShard, kWeight});
  EXPECT_EQ(parts, (std::vector<ValueType>{kShard, kTokens}));
  EXPECT_THAT(
      error_of([] {
        infer(ops::kReduceScatterAddRmsNormAllGather, reduce_norm(), {kTokens, kTokens, kWeight});
      }),
      HasSubstr("the residual is f32[token=10, 64], wanted f32[shard=4, 64]"));
  EXPECT_THAT(
      error_of([] {
        infer(ops::kAllReduceAddRmsNorm, reduce_norm(), {kTokens, kTokens, {DType::f32, {32}}});
      }),
      HasSubstr("w is f32[32], wanted 64 in dimension 0"));
}

// Over all ranks, uneven parts or not, everyone sends what the others lack.
TEST(CommCosts, WireBytesOfUnevenParts) {
  for (int64_t n : {0, 1, 2, 9, 10}) {
    double scattered = 0, gathered = 0, fused = 0;
    for (int r = 0; r < kP; ++r) {
      const Work work{.extents = {.token = n, .shard = even_part(n, kP, r).size()}};
      const auto cost = [&](const OpDef& def, const Attrs& attrs, std::vector<ValueType> in) {
        return def.cost(attrs, in, def.infer(attrs, in), work);
      };
      scattered += cost(ops::kReduceScatter, comm(), {kTokens}).wire_bytes;
      gathered += cost(ops::kAllGather, gather(10), {kShard}).wire_bytes;
      fused +=
          cost(ops::kReduceScatterAddRmsNormAllGather, reduce_norm(), {kTokens, kShard, kWeight})
              .wire_bytes;
    }
    const double row = 64 * 4;
    EXPECT_EQ(scattered, static_cast<double>(n * (kP - 1)) * row);
    EXPECT_EQ(gathered, static_cast<double>(n * (kP - 1)) * row);
    EXPECT_EQ(fused, scattered + gathered);
  }
}

TEST(CommCosts, FusedOpsTouchLessMemoryAndSendTheSame) {
  const Work work{.extents = {.token = 9, .shard = 3}};
  const auto cost = [&](const OpDef& def, const Attrs& attrs, std::vector<ValueType> in) {
    return def.cost(attrs, in, def.infer(attrs, in), work);
  };
  const ValueType w = {DType::q8_0, {96, 64}};
  const ValueType y = {DType::f32, {10, 96}, BatchAxis::token};
  const Cost linear = cost(ops::kLinear, Attrs::of(ops::LinearAttrs{}), {kTokens, w, {}});
  const Cost reduce = cost(ops::kAllReduce, comm(), {y});
  const Cost fused =
      cost(ops::kLinearAllReduce, Attrs::of(ops::LinearAllReduceAttrs{"tp", kP}), {kTokens, w, {}});
  EXPECT_EQ(fused.flops, linear.flops + reduce.flops);
  EXPECT_EQ(fused.wire_bytes, reduce.wire_bytes);
  EXPECT_EQ(fused.bytes, linear.bytes);

  const Attrs norm = Attrs::of(ops::RmsNormAttrs{1e-5f, 64});
  const Cost sum = cost(ops::kAllReduce, comm(), {kTokens});
  const Cost add = cost(ops::kAddRmsNorm, norm, {kTokens, kTokens, kWeight});
  const Cost both = cost(ops::kAllReduceAddRmsNorm, reduce_norm(), {kTokens, kTokens, kWeight});
  EXPECT_EQ(both.flops, sum.flops + add.flops);
  EXPECT_EQ(both.wire_bytes, sum.wire_bytes);
  EXPECT_EQ(both.bytes, add.bytes);

  const Cost scatter = cost(ops::kReduceScatter, comm(), {kTokens});
  const Cost part = cost(ops::kAddRmsNorm, norm, {kShard, kShard, kWeight});
  const Cost back = cost(ops::kAllGather, gather(10), {kShard});
  const Cost all =
      cost(ops::kReduceScatterAddRmsNormAllGather, reduce_norm(), {kTokens, kShard, kWeight});
  EXPECT_EQ(all.flops, scatter.flops + part.flops);
  EXPECT_EQ(all.wire_bytes, scatter.wire_bytes + back.wire_bytes);
  EXPECT_LT(all.bytes, scatter.bytes + part.bytes + back.bytes);
}

TEST(TakeShard, ReferenceCopiesThisRanksRows) {
  std::vector<float> x(10 * 2);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const TensorView in = make_view(reinterpret_cast<std::byte*>(x.data()), DType::f32, {10, 2});
  for (int64_t n : {1, 2, 8, 10}) {
    for (int r = 0; r < kP; ++r) {
      std::vector<float> y(4 * 2, -1);
      const TensorView out = make_view(reinterpret_cast<std::byte*>(y.data()), DType::f32, {4, 2});
      const Attrs attrs =
          ops::kTakeShard.localize(Attrs::of(ops::TakeShardAttrs{"tp", kP, 0}), {}, {}, r);
      const Op op = {.def = &ops::kTakeShard, .attrs = attrs};
      BatchPart part = {{}, {.token = n, .shard = even_part(n, kP, r).size()}};
      ops::kTakeShard.reference({&op, {&in, 1}, {&out, 1}, BatchAxis::token, &part});
      const Range rows = even_part(n, kP, r);
      for (int64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(y[static_cast<size_t>(i)],
                  i < 2 * rows.size() ? x[static_cast<size_t>(2 * rows.begin + i)] : -1);
      }
    }
  }
}

TEST(TakeShard, CutsColumnsThatMayOverlap) {
  const std::vector<Range> parts = {{0, 3}, {2, 5}, {5, 5}};
  std::vector<float> x(10 * 5);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const TensorView in = make_view(reinterpret_cast<std::byte*>(x.data()), DType::f32, {10, 5});
  const ValueType whole = {DType::f32, {10, 5}, BatchAxis::token};
  for (int r = 0; r < kP; ++r) {
    const Range part = parts[static_cast<size_t>(r)];
    const Attrs attrs =
        ops::kTakeShard.localize(Attrs::of(ops::TakeShardAttrs{"tp", kP, 0, parts}), {}, {}, r);
    const ValueType type = infer(ops::kTakeShard, attrs, {whole})[0];
    EXPECT_EQ(type, (ValueType{DType::f32, {10, part.size()}, BatchAxis::token}));
    std::vector<float> y(31, -1);
    const TensorView out =
        make_view(reinterpret_cast<std::byte*>(y.data()), DType::f32, type.shape);
    const Op op = {.def = &ops::kTakeShard, .attrs = attrs};
    BatchPart live = {{}, {.token = 4}};
    ops::kTakeShard.reference({&op, {&in, 1}, {&out, 1}, BatchAxis::token, &live});
    for (int64_t i = 0; i < std::ssize(y); ++i) {
      const bool copied = i < 4 * part.size();
      const int64_t from = copied ? i / part.size() * 5 + part.begin + i % part.size() : 0;
      EXPECT_EQ(y[static_cast<size_t>(i)], copied ? static_cast<float>(from) : -1);
    }
  }
  EXPECT_THAT(error_of([&] {
                infer(ops::kTakeShard, Attrs::of(ops::TakeShardAttrs{"tp", kP, 1, parts}),
                      {{DType::f32, {10, 4}, BatchAxis::token}});
              }),
              HasSubstr("take_shard: x is f32[token=10, 4], wanted columns 2..5"));
}

// A reduction, an add and a norm, as a lowering leaves them.
struct ReducedBlock {
  Builder b{"t", {.token = 10, .sequence = 1, .row = 1, .shard = 4}};
  ValueId x = b.input("x", kTokens);
  ValueId w = b.weight("w", kWeight);

  ValueId norm(ValueId value, int64_t group = 64) {
    return ops::rms_norm(b, value, group == 64 ? w : b.weight("g", {DType::f32, {group}}),
                         {.group = group});
  }
};

std::vector<std::string_view> kinds(const Program& program) {
  std::vector<std::string_view> result;
  for (const Op& op : program.ops) result.push_back(op.def->kind);
  return result;
}

Program replaced(const Program& program, std::string_view name) {
  return fuse(fuse(program, fusions()), {find_replacement(name), 1});
}

TEST(Replacements, NormsTakeTheResidualFromEitherSide) {
  for (bool first : {false, true}) {
    ReducedBlock t;
    const ValueId r = t.b.input("r", kTokens);
    const ValueId sum = t.b.op1(ops::kAllReduce, comm(), {t.x});
    const ValueId s = first ? ops::add(t.b, sum, r) : ops::add(t.b, r, sum);
    const ValueId y = t.norm(s);
    const Program program = replaced(t.b.finish({s, y}), "all_reduce_add_rms_norm");
    ASSERT_EQ(program.ops.size(), 1u);
    EXPECT_EQ(program.ops[0].inputs, (std::vector<ValueId>{t.x, r, t.w}));
    EXPECT_EQ(program.ops[0].outputs, (std::vector<ValueId>{s, y}));
  }
}

TEST(Replacements, ScatterNormGatherIsOneOp) {
  ReducedBlock t;
  const ValueId r = t.b.input("r", kShard);
  const ValueId sum = t.b.op1(ops::kReduceScatter, comm(), {t.x});
  const ValueId s = ops::add(t.b, r, sum);
  const ValueId y = t.b.op1(ops::kAllGather, gather(10), {t.norm(s)});
  constexpr std::string_view kName = "reduce_scatter_add_rms_norm_all_gather";
  const Program program = replaced(t.b.finish({s, y}), kName);
  EXPECT_THAT(kinds(program), testing::ElementsAre(kName));
  EXPECT_EQ(program.ops[0].outputs, (std::vector<ValueId>{s, y}));
}

TEST(Replacements, LeaveWhatSomebodyElseReads) {
  {
    ReducedBlock t;
    const ValueId r = t.b.input("r", kTokens);
    const ValueId sum = t.b.op1(ops::kAllReduce, comm(), {t.x});
    const ValueId y = t.norm(ops::add(t.b, r, sum));
    EXPECT_THAT(kinds(replaced(t.b.finish({y, sum}), "all_reduce_add_rms_norm")),
                testing::ElementsAre("all_reduce", "add_rms_norm"));
  }
  {
    ReducedBlock t;  // the sum with itself has no residual
    const ValueId sum = t.b.op1(ops::kAllReduce, comm(), {t.x});
    const ValueId y = t.norm(ops::add(t.b, sum, sum));
    EXPECT_THAT(kinds(replaced(t.b.finish({y}), "all_reduce_add_rms_norm")),
                testing::ElementsAre("all_reduce", "add_rms_norm"));
  }
  {
    ReducedBlock t;  // two weights
    const ops::LinearWeights w = {t.b.weight("a", {DType::f32, {64, 64}})};
    const auto y = ops::linears(t.b, t.x, {w, w});
    const ValueId sum = t.b.op1(ops::kAllReduce, comm(), {y[0]});
    EXPECT_THAT(kinds(replaced(t.b.finish({sum, y[1]}), "linear_all_reduce")),
                testing::ElementsAre("linear", "all_reduce"));
  }
}

TEST(Fusions, NormsOfGroupsKeepTheirAdd) {
  ReducedBlock t;
  const ValueId y = t.norm(ops::add(t.b, t.x, t.x), 16);
  EXPECT_THAT(kinds(fuse(t.b.finish({y}), fusions())), testing::ElementsAre("add", "rms_norm"));
}

TEST(Replacements, AreAnOpenTableOfNames) {
  EXPECT_EQ(find_replacement("no_such_op"), nullptr);
  for (const char* name :
       {"linear_all_reduce", "all_reduce_add_rms_norm", "reduce_scatter_add_rms_norm_all_gather"}) {
    ASSERT_NE(find_replacement(name), nullptr);
    EXPECT_EQ(find_replacement(name)->name, name);
    EXPECT_THAT(replacement_names(), Contains(name));
  }
  const auto make = [](const Program&, std::span<const Op>) -> std::optional<Op> {
    return std::nullopt;
  };
  const Fusion* before = find_replacement("linear_all_reduce");
  {
    std::string name = "test_replacement", kind = "add";
    add_replacement({name, {kind}, make});
    name = kind = "gone";  // the table has its own
  }
  const Fusion* mine = find_replacement("test_replacement");
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(mine->pattern, std::vector<std::string_view>{"add"});
  EXPECT_EQ(find_replacement("linear_all_reduce"), before);
  EXPECT_THAT(error_of([&] {
                add_replacement({"test_replacement", {"add"}, make});
              }),
              HasSubstr("'test_replacement' is there already"));
  EXPECT_THAT(error_of([&] {
                add_replacement({"linear_all_reduce", {"add"}, make});
              }),
              HasSubstr("there already"));
  EXPECT_THAT(error_of([&] { add_replacement({"empty", {}, make}); }), HasSubstr("a pattern"));
  EXPECT_THAT(error_of([&] { add_replacement({"none", {"add"}, nullptr}); }), HasSubstr("make()"));
}

TEST(FusedOp, WantsItsPatternWhole) {
  ReducedBlock t;
  const ValueId r = t.b.input("r", kTokens);
  const ValueId sum = t.b.op1(ops::kAllReduce, comm(), {t.x});
  const ValueId s = ops::add(t.b, r, sum);
  const Program program = fuse(t.b.finish({s, t.norm(s)}), fusions());
  const std::vector<int> readers = count_readers(program);
  const Fusion& fusion = *find_replacement("all_reduce_add_rms_norm");
  const std::span<const Op> ops = program.ops;
  EXPECT_TRUE(fused_op(program, fusion, ops, readers).has_value());
  EXPECT_FALSE(fused_op(program, fusion, ops.first(1), readers).has_value());
  EXPECT_FALSE(fused_op(program, fusion, ops.subspan(1), readers).has_value());
}

}  // namespace
}  // namespace braid
