// Which ops few_token_fusions() replaces, and which it leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/ops/comm.h"
#include "braid/ops/fusion.h"
#include "unit/parallel/decoder_program.h"

namespace braid {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

Program fused(const Program& program) {
  return fuse(fuse(program, fusions()), few_token_fusions());
}

using Kinds = std::vector<std::string_view>;

Kinds kinds(const Program& program) {
  Kinds result;
  for (const Op& op : program.ops) result.push_back(op.def->kind);
  return result;
}

// Attention's norm and the gate's in each layer, and the head's.
TEST(FewTokenFusions, TakeEveryNormOfADecoder) {
  for (const int64_t T : {int64_t{1}, kFewTokens}) {
    EXPECT_THAT(
        kinds(fused(testing_decoder::decoder(T, 2, DType::bf16))),
        ElementsAre("embedding", "norm_linear", "rope_append", "attention", "linear", "norm_linear",
                    "linear", "norm_linear", "rope_append", "attention", "linear", "norm_linear",
                    "linear", "add", "gather_rows", "norm_linear"));
  }
}

TEST(FewTokenFusions, LeaveMoreTokens) {
  for (const int64_t T : {kFewTokens + 1, int64_t{64}}) {
    // Of the head there are three rows.
    EXPECT_THAT(
        kinds(fused(testing_decoder::decoder(T, 1, DType::bf16))),
        ElementsAre("embedding", "rms_norm", "linear", "rope_append", "attention", "linear",
                    "add_rms_norm", "gated_linear", "linear", "add", "gather_rows", "norm_linear"));
  }
}

// a, w and weights W0, W1 for a norm and what reads it.
struct Block {
  int64_t T;
  Builder b;
  ValueId a, w;

  explicit Block(int64_t tokens = 2)
      : T(tokens),
        b("t", {.token = T, .sequence = 1, .row = 1}),
        a(tokens_of("a", DType::f32)),
        w(b.weight("w", {DType::f32, {64}})) {}
  ValueId tokens_of(const char* name, DType dtype) {
    return b.input(name, {dtype, {T, 64}, BatchAxis::token});
  }
  ValueId norm(ValueId x, DType dtype = DType::f32) {
    return ops::rms_norm(b, x, w, {.group = 64, .dtype = dtype});
  }
  ops::LinearWeights weight(const char* name, DType dtype) {
    return {b.weight(name, {dtype, {96, 64}})};
  }
  ValueId gate(ValueId x, DType gate, DType up, DType dtype) {
    const auto y = ops::linears(b, x, {weight("W0", gate), weight("W1", up)}, dtype);
    return ops::gated(b, y[0], y[1], {});
  }
};

TEST(FewTokenFusions, GateAndUpHaveOneDtype) {
  for (const DType up : {DType::f16, DType::bf16}) {
    Block t;
    const ValueId y = t.gate(t.norm(t.a), DType::f16, up, DType::f32);
    EXPECT_EQ(kinds(fused(t.b.finish({y}))),
              (up == DType::f16 ? Kinds{"norm_linear"} : Kinds{"rms_norm", "gated_linear"}));
  }
}

TEST(FewTokenFusions, LeaveANormThatSomebodyElseReads) {
  enum class Reader { none, output, op };
  for (const bool adds : {false, true}) {
    for (const Reader reader : {Reader::none, Reader::output, Reader::op}) {
      Block t;
      const ValueId s = adds ? ops::add(t.b, t.a, t.tokens_of("b", DType::bf16)) : t.a;
      const ValueId x = t.norm(s);
      std::vector<ValueId> outputs = {ops::linear(t.b, x, t.weight("W0", DType::f16))};
      if (adds) outputs.push_back(s);  // which the fused op makes
      if (reader == Reader::output) outputs.push_back(x);
      if (reader == Reader::op) outputs.push_back(ops::add(t.b, t.a, x));
      const Kinds result = kinds(fused(t.b.finish(outputs)));
      if (reader == Reader::none) {
        EXPECT_EQ(result, Kinds{"norm_linear"});
      } else {
        EXPECT_THAT(result, Not(Contains("norm_linear")));
      }
    }
  }
}

TEST(FewTokenFusions, LeaveWhatDoesNotFit) {
  {
    Block t;  // another's product behind the norm
    const ValueId x = t.norm(t.a);
    const ValueId y = ops::linear(t.b, t.a, t.weight("W0", DType::f16));
    EXPECT_THAT(kinds(fused(t.b.finish({x, y}))), ElementsAre("rms_norm", "linear"));
  }
  {
    Block t;  // heads, not rows
    const ValueId w = t.b.weight("head", {DType::f32, {16}});
    const ValueId x = ops::rms_norm(t.b, t.a, w, {.group = 16});
    const ValueId y = ops::linear(t.b, x, t.weight("W0", DType::f16));
    EXPECT_THAT(kinds(fused(t.b.finish({y}))), ElementsAre("rms_norm", "linear"));
  }
  {
    Block t;  // no residual stream
    const ValueId x = t.norm(t.tokens_of("x", DType::bf16), DType::bf16);
    const ValueId y = ops::linear(t.b, x, t.weight("W0", DType::f16));
    EXPECT_THAT(kinds(fused(t.b.finish({y}))), ElementsAre("rms_norm", "linear"));
  }
  {
    Block t;  // what is added to it was not rounded
    const ValueId s = ops::add(t.b, t.a, t.tokens_of("b", DType::f32));
    const ValueId y = ops::linear(t.b, t.norm(s), t.weight("W0", DType::f16));
    EXPECT_THAT(kinds(fused(t.b.finish({y, s}))), ElementsAre("add_rms_norm", "linear"));
  }
}

TEST(FewTokenFusions, TakeTheNormIntoTheAllReduceBeforeIt) {
  for (const int64_t T : {int64_t{1}, kFewTokens, kFewTokens + 1}) {
    Block t(T);
    const ValueId r = t.tokens_of("r", DType::f32);
    const ValueId sum =
        t.b.op1(ops::kAllReduce, Attrs::of(ops::CommAttrs{.axis = "tp", .ranks = 2}), {t.a});
    const ValueId s = ops::add(t.b, r, sum);
    const ValueId y = ops::linear(t.b, t.norm(s), t.weight("W0", DType::f16));
    EXPECT_EQ(kinds(fused(t.b.finish({y, s}))),
              (T <= kFewTokens ? Kinds{"all_reduce_add_rms_norm", "linear"}
                               : Kinds{"all_reduce", "add_rms_norm", "linear"}));
  }
}

// The fused op's residual is f32, and it reduces what has the type of its result.
TEST(FewTokenFusions, LeaveAReductionOfOtherTypes) {
  for (int form = 0; form < 16; ++form) {
    const auto dtype = [&](int bit) { return form >> bit & 1 ? DType::bf16 : DType::f32; };
    const DType x = dtype(0), r = dtype(1), normed = dtype(2);
    const bool first = form >= 8;
    SCOPED_TRACE(fmt::format("{} + {} -> {}, {}", name(x), name(r), name(normed), first));
    Block t;
    const ValueId sum =
        t.b.op1(ops::kAllReduce, Attrs::of(ops::CommAttrs{.axis = "tp", .ranks = 2}),
                {t.tokens_of("x", x)});
    const ValueId residual = t.tokens_of("r", r);
    const ValueId s = first ? ops::add(t.b, sum, residual) : ops::add(t.b, residual, sum);
    const bool fits = r == DType::f32 && t.b.type(s).dtype == DType::f32 && x == normed;
    EXPECT_EQ(kinds(fused(t.b.finish({t.norm(s, normed), s}))),
              (fits ? Kinds{"all_reduce_add_rms_norm"} : Kinds{"all_reduce", "add_rms_norm"}));
  }
}

}  // namespace
}  // namespace braid
