#include "braid/ops/norm.h"

#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer_norm(const Attrs& attrs, TypeList in) {
  const int64_t group = attrs.as<RmsNormAttrs>().group;
  require_rank("rms_norm", "x", in[0], 2);
  require_float("rms_norm", "x", in[0]);
  require_rank("rms_norm", "w", in[1], 1);
  require_dim("rms_norm", "w", in[1], 0, group);
  if (in[0].shape[1] % group != 0) {
    fail(ErrorCode::kInvalidArgument, "rms_norm: x is {}, no whole groups of {}", to_string(in[0]),
         group);
  }
  return {{attrs.as<RmsNormAttrs>().dtype, in[0].shape, in[0].axis}};
}

Cost cost_norm(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 4);
}

// Rows are independent; groups are too, as long as no rank's part cuts a group.
bool passes(const Placement& x, int64_t group) {
  if (x.is_shard(0)) return true;
  if (!x.is_shard(1)) return false;
  for (const Range& part : x.parts) {
    if (part.begin % group != 0 || part.end % group != 0) return false;
  }
  return true;
}

ShardRule shard_norm(const Attrs& attrs, TypeList, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(2, 1);
  if (passes(placed[0], attrs.as<RmsNormAttrs>().group)) {
    rule.inputs[0] = rule.outputs[0] = placed[0];
  }
  return rule;
}

void normalize(std::vector<float>& x, const std::vector<float>& w, const RmsNormAttrs& attrs) {
  const size_t group = attrs.group;
  for (size_t g = 0; g < x.size(); g += group) {
    double sum = 0;
    for (size_t i = 0; i < group; ++i) sum += static_cast<double>(x[g + i]) * x[g + i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(group) + attrs.eps);
    for (size_t i = 0; i < group; ++i) x[g + i] = static_cast<float>(x[g + i] * scale * w[i]);
  }
}

void reference_norm(const OpCall& call) {
  const std::vector<float> w = load_row(call.in[1], 0);
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::vector<float> x = load_row(call.in[0], t);
    normalize(x, w, call.attrs<RmsNormAttrs>());
    store_row(call.out[0], t, x);
  }
}

std::vector<ValueType> infer_add(const Attrs&, TypeList in) {
  require_rank("add", "a", in[0], 2);
  for (size_t i : {0u, 1u}) require_float("add", i == 0 ? "a" : "b", in[i]);
  if (in[0].shape != in[1].shape || in[0].axis != in[1].axis) {
    fail(ErrorCode::kInvalidArgument, "add: a is {}, b is {}", to_string(in[0]), to_string(in[1]));
  }
  return {in[0]};
}

Cost cost_add(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 1);
}

ShardRule shard_add(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  if (placed[0] == placed[1]) return {{placed[0], placed[1]}, {placed[0]}};
  for (const Placement& p : placed) {
    if (p.is_shard()) return {{p, p}, {p}};
  }
  return replicate_all(2, 1);
}

void reference_add(const OpCall& call) {
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::vector<float> x = load_row(call.in[0], t);
    const std::vector<float> y = load_row(call.in[1], t);
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    store_row(call.out[0], t, x);
  }
}

std::vector<ValueType> infer_add_norm(const Attrs& attrs, TypeList in) {
  const ValueType s = infer_add({}, in.first(2))[0];
  const ValueType norm_in[] = {s, in[2]};
  return {s, infer_norm(attrs, norm_in)[0]};
}

Cost cost_add_norm(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 5);
}

ShardRule shard_add_norm(const Attrs& attrs, TypeList in, std::span<const Placement> placed,
                         int P) {
  const ShardRule sum = shard_add({}, in.first(2), placed.first(2), P);
  const Placement norm_placed[] = {sum.outputs[0], placed[2]};
  const ShardRule norm = shard_norm(attrs, in, norm_placed, P);
  if (norm.inputs[0] != sum.outputs[0]) return replicate_all(3, 2);
  return {{sum.inputs[0], sum.inputs[1], {}}, {sum.outputs[0], norm.outputs[0]}};
}

void reference_add_norm(const OpCall& call) {
  reference_add({call.op, call.in.first(2), call.out.first(1), call.axis, call.part});
  const TensorView norm_in[] = {call.out[0], call.in[2]};
  reference_norm({call.op, norm_in, call.out.subspan(1), call.axis, call.part});
}

}  // namespace

const OpDef kRmsNorm = {.kind = "rms_norm",
                        .infer = infer_norm,
                        .cost = cost_norm,
                        .shard = shard_norm,
                        .reference = reference_norm};

const OpDef kAdd = {.kind = "add",
                    .infer = infer_add,
                    .cost = cost_add,
                    .shard = shard_add,
                    .reference = reference_add};

const OpDef kAddRmsNorm = {.kind = "add_rms_norm",
                           .infer = infer_add_norm,
                           .cost = cost_add_norm,
                           .shard = shard_add_norm,
                           .reference = reference_add_norm};

ValueId rms_norm(Builder& b, ValueId x, ValueId w, RmsNormAttrs attrs) {
  return b.op1(kRmsNorm, Attrs::of(attrs), {x, w});
}

ValueId add(Builder& b, ValueId x, ValueId y) {
  return b.op1(kAdd, {}, {x, y});
}

}  // namespace braid::ops
