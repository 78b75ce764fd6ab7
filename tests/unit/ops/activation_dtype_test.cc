// Ops that say the dtype of what they make, beside a residual of another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "braid/ops/fusion.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/tensor/quant.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

using Kinds = std::vector<std::string_view>;

struct Block {
  Builder b{"t", {.token = 3, .sequence = 1, .row = 1}};
  ValueId x(const char* name, DType dtype) {
    return b.input(name, {dtype, {3, 64}, BatchAxis::token});
  }
  ValueId norm(ValueId x, DType dtype) {
    return ops::rms_norm(b, x, b.weight("w", {DType::bf16, {64}}), {.group = 64, .dtype = dtype});
  }
  ops::LinearWeights weight(const char* name, int64_t N) {
    return {b.weight(name, {DType::f16, {N, 64}})};
  }
  std::string type(ValueId id) const { return to_string(b.type(id)); }
};

TEST(ActivationDtype, IsWhatTheOpSays) {
  Block t;
  const ValueId x = t.norm(t.x("a", DType::f32), DType::bf16);
  EXPECT_EQ(t.type(x), "bf16[token=3, 64]");
  const auto y = ops::linears(t.b, x, {t.weight("q", 96), t.weight("k", 10)}, DType::f16);
  EXPECT_EQ(t.type(y[0]), "f16[token=3, 96]");
  EXPECT_EQ(t.type(y[1]), "f16[token=3, 10]");
  const std::string text = to_string(t.b.finish(y));
  EXPECT_THAT(text, HasSubstr("rms_norm(a, w) {eps=1e-05, group=64, dtype=bf16}"));
  EXPECT_THAT(text, HasSubstr("{n=2, dtype=f16}"));
}

TEST(ActivationDtype, IsF32UnlessSaid) {
  Block t;
  const ValueId x = t.norm(t.x("a", DType::bf16), DType::f32);
  EXPECT_EQ(t.type(x), "f32[token=3, 64]");
  const ValueId y = ops::linear(t.b, t.x("b", DType::bf16), t.weight("q", 96));
  EXPECT_EQ(t.type(y), "f32[token=3, 96]");
  EXPECT_THAT(to_string(t.b.finish({x, y})), Not(HasSubstr("dtype")));
}

TEST(ActivationDtype, OfASumIsThatOfItsFirst) {
  for (const DType a : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType b : {DType::f32, DType::bf16, DType::f16}) {
      Block t;
      const ValueId s = ops::add(t.b, t.x("a", a), t.x("b", b));
      EXPECT_EQ(t.b.type(s), (ValueType{a, {3, 64}, BatchAxis::token}));
    }
  }
}

TEST(ActivationDtype, OfASumIsAFloat) {
  Block t;
  const ValueId a = t.x("a", DType::f32), b = t.x("b", DType::i32);
  EXPECT_THROW(ops::add(t.b, a, b), Error);
  EXPECT_THROW(ops::add(t.b, b, a), Error);
}

// gated_linear makes x's dtype, so it stands for no product of another.
TEST(ActivationDtype, OfAGateIsThatOfItsInput) {
  for (const DType x : {DType::f32, DType::bf16}) {
    for (const DType y : {DType::f32, DType::bf16}) {
      Block t;
      const auto up = ops::linears(t.b, t.x("a", x), {t.weight("gate", 96), t.weight("up", 96)}, y);
      const ValueId gated = ops::gated(t.b, up[0], up[1], {});
      const Program program = fuse(t.b.finish({gated}), fusions());
      Kinds kinds;
      for (const Op& op : program.ops) kinds.push_back(op.def->kind);
      EXPECT_EQ(kinds, (x == y ? Kinds{"gated_linear"} : Kinds{"linear", "gated"}));
      EXPECT_EQ(program.value(program.outputs[0]).type.dtype, y);
    }
  }
}

// As diffusers clips what is f16.
TEST(ActivationDtype, SumsInF16EndAtItsLargestNumbers) {
  std::vector<f16> a, b, y(4);
  for (float x : {65504.f, -65504.f, 1.f, NAN}) a.push_back(to_f16(x));
  for (float x : {65504.f, -INFINITY, 2.f, 1.f}) b.push_back(to_f16(x));
  const auto view = [](std::vector<f16>& v) {
    return make_view(reinterpret_cast<std::byte*>(v.data()), DType::f16, {1, 4});
  };
  const TensorView in[] = {view(a), view(b)}, out = view(y);
  const Op op{.def = &ops::kAdd};
  BatchPart part;
  ops::kAdd.reference({.op = &op, .in = in, .out = {&out, 1}, .part = &part});
  EXPECT_EQ(to_float(y[0]), 65504);
  EXPECT_EQ(to_float(y[1]), -65504);
  EXPECT_EQ(to_float(y[2]), 3);
  EXPECT_TRUE(std::isnan(to_float(y[3])));
}

}  // namespace
}  // namespace braid
