#include "braid/ops/norm_linear.h"

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

enum Input : size_t { kA, kB, kNormWeight, kWeights };

bool adds(TypeList in) {
  return in[kB].shape.rank() != 0;
}

// The operands of the second op: x, then the weights and biases.
std::vector<ValueType> linear_inputs(const ValueType& x, TypeList in) {
  std::vector<ValueType> types = {x};
  types.insert(types.end(), in.begin() + kWeights, in.end());
  return types;
}

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<NormLinearAttrs>();
  std::vector<ValueType> out;
  ValueType x;
  if (adds(in)) {
    const auto normed = kAddRmsNorm.infer(Attrs::of(a.norm), in.first(3));
    out.push_back(normed[0]);
    x = normed[1];
  } else {
    const std::vector<ValueType> norm_in = {in[kA], in[kNormWeight]};
    x = kRmsNorm.infer(Attrs::of(a.norm), norm_in)[0];
  }
  const std::vector<ValueType> linear_in = linear_inputs(x, in);
  const std::vector<ValueType> y =
      a.gated ? kGatedLinear.infer(Attrs::of(GatedAttrs{a.activation}), linear_in)
              : kLinear.infer(Attrs::of(a.linear), linear_in);
  out.insert(out.end(), y.begin(), y.end());
  return out;
}

Cost cost(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const bool gated = attrs.as<NormLinearAttrs>().gated;
  const TypeList y = out.subspan(adds(in) ? 1 : 0);
  Cost cost = elementwise_cost(in, out, work, 0);
  for (const ValueType& type : y) {
    cost.flops += (gated ? 4 : 2) * live_elems(type, work) * static_cast<double>(in[kA].shape[1]);
  }
  return cost;
}

ShardRule shard(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 1);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<NormLinearAttrs>();
  const bool sums = call.in[kB].data != nullptr;
  const Shape shape = call.in[kA].shape;
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(a.norm.dtype, shape.elems())));
  const TensorView x = make_view(bytes.data(), a.norm.dtype, shape);
  const Op norm = {.attrs = Attrs::of(a.norm)};
  if (sums) {
    const TensorView out[] = {call.out[0], x};
    kAddRmsNorm.reference({&norm, call.in.first(3), out, call.axis, call.part});
  } else {
    const TensorView in[] = {call.in[kA], call.in[kNormWeight]};
    kRmsNorm.reference({&norm, in, {&x, 1}, call.axis, call.part});
  }
  std::vector<TensorView> in = {x};
  in.insert(in.end(), call.in.begin() + kWeights, call.in.end());
  const Op product = {.attrs = a.gated ? Attrs::of(GatedAttrs{a.activation}) : Attrs::of(a.linear)};
  const OpDef& def = a.gated ? kGatedLinear : kLinear;
  def.reference({&product, in, call.out.subspan(sums ? 1 : 0), call.axis, call.part});
}

}  // namespace

const OpDef kNormLinear = {
    .kind = "norm_linear", .infer = infer, .cost = cost, .shard = shard, .reference = reference};

}  // namespace braid::ops
