// Fusions of networks without a KV cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/ops/concat.h"
#include "braid/ops/linear.h"
#include "braid/ops/linear_unary.h"
#include "braid/ops/norm.h"
#include "braid/ops/norm_rope_table.h"

namespace braid {
namespace {

using testing::ElementsAre;

std::vector<std::string_view> kinds(const Program& program) {
  std::vector<std::string_view> out;
  for (const Op& op : program.ops) out.push_back(op.def->kind);
  return out;
}

// gelu(x W^T), alone or right of x, in `dtype`.
Program hidden(DType dtype, bool beside, ops::UnaryFunction function) {
  Builder b("hidden", {});
  const ValueId x = b.input("x", {dtype, {10, 16}});
  const ValueId w = b.weight("w", {dtype, {24, 16}}), bias = b.weight("b", {dtype, {24}});
  ValueId y = ops::unary(b, ops::linear(b, x, {w, bias}, dtype), function);
  if (beside) y = ops::concat_columns(b, {x, y});
  return b.finish({y});
}

TEST(DenseFusions, LinearUnary) {
  constexpr auto kGelu = ops::UnaryFunction::gelu_tanh;
  const auto fused = [](const Program& program) {
    return fuse(program, ops::linear_unary_fusions());
  };
  const Program alone = fused(hidden(DType::bf16, false, kGelu));
  EXPECT_THAT(kinds(alone), ElementsAre("linear_unary"));
  const Program beside = fused(hidden(DType::bf16, true, kGelu));
  EXPECT_THAT(kinds(beside), ElementsAre("linear_unary"));
  EXPECT_EQ(beside.value(beside.outputs[0]).type.shape, (Shape{10, 40}));
  const Program half = fused(hidden(DType::f16, true, kGelu));
  EXPECT_THAT(kinds(half), ElementsAre("linear_unary"));
  EXPECT_EQ(half.value(half.outputs[0]).type.dtype, DType::f16);
  // Products in f32, and other functions, have no such end.
  EXPECT_THAT(kinds(fused(hidden(DType::f32, true, kGelu))),
              ElementsAre("linear", "unary", "concat_columns"));
  EXPECT_THAT(kinds(fused(hidden(DType::bf16, false, ops::UnaryFunction::silu))),
              ElementsAre("linear", "unary"));
}

Program rotated(DType dtype, int64_t head_dim, int64_t rotary, bool reads_norm) {
  Builder b("rotated", {});
  const ValueId q = b.input("q", {dtype, {10, 2 * head_dim}});
  const ValueId k = b.input("k", {dtype, {10, head_dim}});
  const ValueId w = b.weight("w", {DType::bf16, {head_dim}});
  const ValueId table = b.input("table", {DType::f32, {10, rotary}});
  const ops::RmsNormAttrs norm{.group = head_dim, .dtype = dtype};
  const ValueId qn = ops::rms_norm(b, q, w, norm), kn = ops::rms_norm(b, k, w, norm);
  const ops::RopeTableAttrs rope{.head_dim = head_dim};
  std::vector<ValueId> out = {ops::rope_table(b, qn, table, rope),
                              ops::rope_table(b, kn, table, rope)};
  if (reads_norm) out.push_back(kn);
  return b.finish(out);
}

TEST(DenseFusions, NormRopeTable) {
  const auto fused = [](const Program& program) {
    return kinds(fuse(program, ops::norm_rope_table_fusions()));
  };
  for (DType dtype : {DType::bf16, DType::f16}) {
    EXPECT_THAT(fused(rotated(dtype, 128, 128, false)), ElementsAre("norm_rope_table"));
  }
  for (const Program& program :
       {rotated(DType::f32, 128, 128, false), rotated(DType::bf16, 80, 80, false),
        rotated(DType::bf16, 128, 64, false), rotated(DType::bf16, 128, 128, true)}) {
    EXPECT_THAT(fused(program), ElementsAre("rms_norm", "rms_norm", "rope_table", "rope_table"));
  }
}

}  // namespace
}  // namespace braid
