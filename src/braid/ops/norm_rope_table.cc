#include "braid/ops/norm_rope_table.h"

#include "braid/ops/norm.h"
#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

enum Input : size_t { kQ, kQNorm, kK, kKNorm, kTable };

RmsNormAttrs norm_of(const NormRopeTableAttrs& a) {
  return {.eps = a.eps, .group = a.rope.head_dim, .dtype = a.dtype};
}

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<NormRopeTableAttrs>();
  std::vector<ValueType> out;
  for (const size_t x : {kQ, kK}) {
    const ValueType normed = kRmsNorm.infer(Attrs::of(norm_of(a)), in.subspan(x, 2))[0];
    const std::vector<ValueType> turned = {normed, in[kTable]};
    out.push_back(kRopeTable.infer(Attrs::of(a.rope), turned)[0]);
  }
  return out;
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 8);
}

ShardRule shard(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(5, 2);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<NormRopeTableAttrs>();
  RmsNormAttrs exact = norm_of(a);
  exact.dtype = DType::f32;
  const Op norm = {.def = &kRmsNorm, .attrs = Attrs::of(exact)};
  const Op rope = {.def = &kRopeTable, .attrs = Attrs::of(a.rope)};
  for (size_t i = 0; i < 2; ++i) {
    const TensorView& y = call.out[i];
    std::vector<float> values(y.shape.elems());
    const TensorView z =
        make_view(reinterpret_cast<std::byte*>(values.data()), DType::f32, y.shape);
    kRmsNorm.reference({&norm, call.in.subspan(2 * i, 2), {&z, 1}, call.axis, call.part});
    const TensorView in[] = {z, call.in[kTable]};
    kRopeTable.reference({&rope, in, {&z, 1}, call.axis, call.part});
    for (int64_t t = 0; t < y.shape[0]; ++t) store_row(y, t, load_row(z, t));
  }
}

std::optional<Op> make(const Program& program, std::span<const Op> run) {
  const Op &q_norm = run[0], &k_norm = run[1], &q_rope = run[2], &k_rope = run[3];
  const auto type = [&](ValueId id) -> const ValueType& { return program.value(id).type; };
  const auto& norm = q_norm.attrs.as<RmsNormAttrs>();
  const auto& rope = q_rope.attrs.as<RopeTableAttrs>();
  const int64_t D = rope.head_dim;
  if (q_rope.inputs[0] != q_norm.outputs[0] || k_rope.inputs[0] != k_norm.outputs[0] ||
      q_norm.attrs != k_norm.attrs || q_rope.attrs != k_rope.attrs ||
      q_rope.inputs[1] != k_rope.inputs[1] || norm.group != D ||
      (D != 64 && D != 128 && D != 256) || type(q_rope.inputs[1]).shape[1] != D) {
    return std::nullopt;
  }
  if (norm.dtype != DType::bf16 && norm.dtype != DType::f16) return std::nullopt;
  for (const Op& op : run.first(2)) {
    const ValueType& x = type(op.inputs[0]);
    if (x.dtype != norm.dtype || x.axis != BatchAxis::none) {
      return std::nullopt;
    }
  }
  return Op{
      &kNormRopeTable,
      Attrs::of(NormRopeTableAttrs{rope, norm.eps, norm.dtype}),
      {q_norm.inputs[0], q_norm.inputs[1], k_norm.inputs[0], k_norm.inputs[1], q_rope.inputs[1]},
      {q_rope.outputs[0], k_rope.outputs[0]},
      q_norm.scope,
      q_norm.tag};
}

}  // namespace

const OpDef kNormRopeTable = {.kind = "norm_rope_table",
                              .infer = infer,
                              .mutated_inputs = {},
                              .cost = cost,
                              .shard = shard,
                              .reference = reference};

const std::vector<Fusion>& norm_rope_table_fusions() {
  static const std::vector<Fusion> kFusions = {
      {"norm_rope_table", {"rms_norm", "rms_norm", "rope_table", "rope_table"}, make}};
  return kFusions;
}

}  // namespace braid::ops
