#include "braid/ops/layer_norm.h"

#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

void require_modulation(std::string_view op, const ValueType& modulation, const ValueType& x,
                        int64_t column) {
  if (column == kNoColumn) return;
  require_rank(op, "modulation", modulation, 2);
  require_dtype(op, "modulation", modulation, DType::f32);
  if (column < 0 || column + x.shape[1] > modulation.shape[1]) {
    fail(ErrorCode::kInvalidArgument, "{}: columns {}..{} of the modulation, which is {}", op,
         column, column + x.shape[1], to_string(modulation));
  }
  if (x.shape[0] % modulation.shape[0] != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: x is {}, no whole rows for each of {} sequences", op,
         to_string(x), modulation.shape[0]);
  }
}

std::vector<ValueType> infer_norm(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<LayerNormAttrs>();
  require_rank("layer_norm", "x", in[0], 2);
  require_float("layer_norm", "x", in[0]);
  if (a.group < 1 || in[0].shape[1] % a.group != 0) {
    fail(ErrorCode::kInvalidArgument, "layer_norm: x is {}, no whole groups of {}",
         to_string(in[0]), a.group);
  }
  for (size_t i : {1u, 2u}) {
    if (in[i].shape.rank() == 0) continue;
    require_rank("layer_norm", i == 1 ? "w" : "b", in[i], 1);
    require_dim("layer_norm", i == 1 ? "w" : "b", in[i], 0, a.group);
  }
  for (int64_t column : {a.scale_column, a.shift_column}) {
    require_modulation("layer_norm", in[3], in[0], column);
  }
  return {{a.dtype, in[0].shape, in[0].axis}};
}

// The modulation is read once, and only its named columns.
Cost row_cost(TypeList in, TypeList out, const Work& work, int columns, double flops) {
  Cost cost = elementwise_cost(in.first(in.size() - 1), out, work, flops);
  const ValueType& modulation = in.back();
  if (modulation.shape.rank() != 0) {
    cost.bytes += 4.0 * columns * static_cast<double>(modulation.shape[0] * in[0].shape[1]);
  }
  return cost;
}

Cost cost_norm(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return row_cost(in, out, work, 2, 8);
}

// Rows are independent; with a single sequence, rows find its modulation.
bool rows_divide(TypeList in, const Placement& x) {
  const ValueType& modulation = in.back();
  return x.is_shard(0) && (modulation.shape.rank() == 0 || modulation.shape[0] == 1);
}

ShardRule shard_norm(const Attrs&, TypeList in, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(4, 1);
  if (rows_divide(in, placed[0])) rule.inputs[0] = rule.outputs[0] = placed[0];
  return rule;
}

const float* modulation_of(const OpCall& call, int64_t row, int64_t column) {
  const TensorView& modulation = call.in.back();
  const int64_t per_sequence = call.in[0].shape[0] / modulation.shape[0];
  return modulation.row_as<const float>(row / per_sequence) + column;
}

void reference_norm(const OpCall& call) {
  const auto& a = call.attrs<LayerNormAttrs>();
  const size_t group = a.group;
  const std::vector<float> w = call.in[1].data ? load_row(call.in[1], 0) : std::vector<float>();
  const std::vector<float> b = call.in[2].data ? load_row(call.in[2], 0) : std::vector<float>();
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::vector<float> x = load_row(call.in[0], t);
    const float* scale =
        a.scale_column == kNoColumn ? nullptr : modulation_of(call, t, a.scale_column);
    const float* shift =
        a.shift_column == kNoColumn ? nullptr : modulation_of(call, t, a.shift_column);
    for (size_t g = 0; g < x.size(); g += group) {
      double mean = 0, variance = 0;
      for (size_t i = 0; i < group; ++i) mean += x[g + i];
      mean /= static_cast<double>(group);
      for (size_t i = 0; i < group; ++i) variance += (x[g + i] - mean) * (x[g + i] - mean);
      const double inverse = 1 / std::sqrt(variance / static_cast<double>(group) + a.eps);
      for (size_t i = 0; i < group; ++i) {
        double y = (x[g + i] - mean) * inverse;
        if (!w.empty()) y *= w[i];
        if (!b.empty()) y += b[i];
        if (scale) y *= 1.0 + scale[g + i];
        if (shift) y += shift[g + i];
        x[g + i] = static_cast<float>(y);
      }
    }
    store_row(call.out[0], t, x);
  }
}

std::vector<ValueType> infer_add(const Attrs& attrs, TypeList in) {
  require_rank("gated_add", "a", in[0], 2);
  require_float("gated_add", "a", in[0]);
  require_float("gated_add", "b", in[1]);
  if (in[0].shape != in[1].shape || in[0].axis != in[1].axis) {
    fail(ErrorCode::kInvalidArgument, "gated_add: a is {}, b is {}", to_string(in[0]),
         to_string(in[1]));
  }
  require_modulation("gated_add", in[2], in[0], attrs.as<GatedAddAttrs>().gate_column);
  return {in[0]};
}

Cost cost_add(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return row_cost(in, out, work, 1, 2);
}

ShardRule shard_add(const Attrs&, TypeList in, std::span<const Placement> placed, int) {
  for (const Placement& p : placed.first(2)) {
    if (rows_divide(in, p)) return {{p, p, {}}, {p}};
  }
  return replicate_all(3, 1);
}

void reference_add(const OpCall& call) {
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::vector<float> x = load_row(call.in[0], t);
    const std::vector<float> y = load_row(call.in[1], t);
    const float* gate = modulation_of(call, t, call.attrs<GatedAddAttrs>().gate_column);
    for (size_t i = 0; i < x.size(); ++i) x[i] += gate[i] * y[i];
    store_row(call.out[0], t, x);
  }
}

}  // namespace

const OpDef kLayerNorm = {.kind = "layer_norm",
                          .infer = infer_norm,
                          .mutated_inputs = {},
                          .cost = cost_norm,
                          .shard = shard_norm,
                          .reference = reference_norm};

const OpDef kGatedAdd = {.kind = "gated_add",
                         .infer = infer_add,
                         .mutated_inputs = {},
                         .cost = cost_add,
                         .shard = shard_add,
                         .reference = reference_add};

ValueId layer_norm(Builder& b, ValueId x, Affine affine, const LayerNormAttrs& attrs,
                   ValueId modulation) {
  return b.op1(kLayerNorm, Attrs::of(attrs), {x, affine.w, affine.b, modulation});
}

ValueId gated_add(Builder& b, ValueId x, ValueId y, ValueId modulation, int64_t gate_column) {
  return b.op1(kGatedAdd, Attrs::of(GatedAddAttrs{gate_column}), {x, y, modulation});
}

}  // namespace braid::ops
