// Shape rules accept what fits and name what does not; Programs verify and print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/ops/attention.h"
#include "braid/ops/embedding.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/rope.h"

namespace braid {
namespace {

using testing::HasSubstr;

const ValueType kX = {DType::f32, {4, 64}, BatchAxis::token};

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ShapeRules, LinearNamesTheDimension) {
  Builder b("t", {4, 1, 1});
  const ValueId x = b.input("x", kX);
  const ValueId w = b.weight("w", {DType::q4_1, {96, 32}});
  EXPECT_THAT(error_of([&] { ops::linear(b, x, {w}); }),
              HasSubstr("linear: w is q4_1[96, 32], wanted 64 in dimension 1"));
}

TEST(ShapeRules, LinearKeepsTheBatchAxis) {
  Builder b("t", {4, 1, 1});
  const std::vector<ops::LinearWeights> weights = {{b.weight("a", {DType::f16, {96, 64}})},
                                                   {b.weight("b", {DType::f16, {10, 64}})}};
  const auto y = ops::linears(b, b.input("x", kX), weights);
  EXPECT_EQ(to_string(b.type(y[0])), "f32[token=4, 96]");
  EXPECT_EQ(to_string(b.type(y[1])), "f32[token=4, 10]");
}

TEST(ShapeRules, NormWantsWholeGroups) {
  Builder b("t", {4, 1, 1});
  const ValueId x = b.input("x", kX);
  const ValueId w = b.weight("w", {DType::f32, {48}});
  EXPECT_THAT(error_of([&] { ops::rms_norm(b, x, w, {.group = 48}); }),
              HasSubstr("no whole groups of 48"));
}

TEST(ShapeRules, AttentionWantsItsKvHeads) {
  Builder b("t", {4, 1, 1});
  const ValueId q = b.input("q", {DType::f32, {4, 9 * 8}, BatchAxis::token});
  const ops::KvCache cache = {b.state("k", {DType::f16, {2, 16, 2, 8}}),
                              b.state("v", {DType::f16, {2, 16, 2, 8}})};
  const ops::AttentionMeta meta = {
      b.input("slots", {DType::i32, {4}}), b.input("q_start", {DType::i32, {2}}),
      b.input("kv_len", {DType::i32, {1}}), b.input("pages", {DType::i32, {1, 2}})};
  EXPECT_THAT(error_of([&] { ops::attention(b, q, cache, meta, {.head_dim = 8, .group = 3}); }),
              HasSubstr("9 heads of 8 do not read 2 KV heads in groups of 3"));
}

TEST(ProgramTest, PrintsOneLinePerOp) {
  Builder b("demo", {4, 1, 1});
  const ValueId x = b.input("x", kX);
  ValueId y;
  {
    const auto scope = b.scope("layers.0");
    const auto inner = b.scope("mlp");
    y = ops::rms_norm(b, x, b.weight("w", {DType::f32, {64}}), {.eps = 1e-5f, .group = 64});
  }
  const Program program = b.finish({ops::add(b, x, y)});
  EXPECT_EQ(to_string(program),
            "program demo (token 4, sequence 1, row 1)\n"
            "  %2 = rms_norm(x, w) {eps=1e-05, group=64} : f32[token=4, 64]  # layers.0.mlp\n"
            "  %3 = add(x, %2) : f32[token=4, 64]\n"
            "  return %3\n");
}

TEST(ProgramTest, VerifierCatchesBrokenPrograms) {
  Builder b("t", {4, 1, 1});
  const ValueId x = b.input("x", kX);
  const ValueId y = ops::add(b, x, x);
  const ValueId z = ops::add(b, y, x);
  const Program good = b.finish({z});
  verify(good);

  Program swapped = good;
  std::swap(swapped.ops[0], swapped.ops[1]);
  EXPECT_THROW(verify(swapped), std::logic_error) << "read before it is made";

  Program twice = good;
  twice.ops.push_back(twice.ops[0]);
  EXPECT_THROW(verify(twice), std::logic_error) << "made twice";

  Program wrong_type = good;
  wrong_type.values[static_cast<size_t>(z)].type.shape[1] = 65;
  EXPECT_THROW(verify(wrong_type), std::logic_error) << "type is not the rule's";

  Program unknown = good;
  unknown.ops[0].inputs[0] = 77;
  EXPECT_THROW(verify(unknown), std::logic_error) << "operand out of range";

  Program same_name = good;
  same_name.values.push_back(same_name.values[static_cast<size_t>(x)]);
  EXPECT_THROW(verify(same_name), std::logic_error) << "two inputs of one name";

  Program no_output = good;
  no_output.ops.pop_back();
  EXPECT_THROW(verify(no_output), std::logic_error) << "output is not made";
}

TEST(AttrsTest, ComparePrintAndRefuseAnotherType) {
  const Attrs a = Attrs::of(ops::RmsNormAttrs{1e-5f, 64});
  EXPECT_EQ(a, Attrs::of(ops::RmsNormAttrs{1e-5f, 64}));
  EXPECT_FALSE(a == Attrs::of(ops::RmsNormAttrs{1e-5f, 32}));
  EXPECT_FALSE(a == Attrs::of(ops::LinearAttrs{}));
  EXPECT_FALSE(a == Attrs());
  EXPECT_THROW(a.as<ops::LinearAttrs>(), std::logic_error);
}

TEST(CostTest, LinearCountsEachWeightOnceAndLiveTokens) {
  Builder b("t", {512, 1, 1});
  const ValueId x = b.input("x", {DType::f32, {512, 64}, BatchAxis::token});
  const ValueId y = ops::linear(b, x, {b.weight("w", {DType::q8_0, {96, 64}})});
  const Program program = b.finish({y});
  const Cost cost = program.cost(program.ops[0], {.extents = {3, 1, 1}});
  EXPECT_EQ(cost.flops, 2.0 * 3 * 64 * 96);
  EXPECT_EQ(cost.bytes, 3 * 64 * 4 + 96 * 64 / 32 * 34 + 3 * 96 * 4);
}

}  // namespace
}  // namespace braid
