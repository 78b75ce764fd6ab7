#include "braid/ops/linear.h"

#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer_linear(const Attrs& attrs, TypeList in) {
  const size_t n = attrs.as<LinearAttrs>().n;
  BRAID_CHECK(in.size() == 1 + 2 * n, "linear with {} weights has {} inputs", n, in.size());
  require_rank("linear", "x", in[0], 2);
  require_float("linear", "x", in[0]);
  std::vector<ValueType> out;
  for (size_t i = 0; i < n; ++i) {
    const ValueType& w = in[1 + i];
    const ValueType& bias = in[1 + n + i];
    require_rank("linear", "w", w, 2);
    require_dim("linear", "w", w, 1, in[0].shape[1]);
    if (bias.shape.rank() != 0) require_dim("linear", "bias", bias, 0, w.shape[0]);
    out.push_back({attrs.as<LinearAttrs>().dtype, {in[0].shape[0], w.shape[0]}, in[0].axis});
  }
  return out;
}

Cost cost_linear(const Attrs&, TypeList in, TypeList out, const Work& work) {
  Cost cost = elementwise_cost(in, out, work, 0);
  for (const ValueType& y : out) {
    cost.flops += 2 * live_elems(y, work) * static_cast<double>(in[0].shape[1]);
  }
  return cost;
}

ShardRule shard_linear(const Attrs& attrs, TypeList, std::span<const Placement> placed, int) {
  const size_t n = attrs.as<LinearAttrs>().n;
  ShardRule rule = replicate_all(1 + 2 * n, n);
  if (placed[1].is_shard(1)) {
    BRAID_CHECK(n == 1, "a row-parallel linear has one weight, not {}", n);
    rule.inputs[0] = rule.inputs[1] = placed[1];
    rule.outputs[0] = Placement::partial();
    return rule;
  }
  bool divides_weights = false;
  for (size_t i = 0; i < n; ++i) {
    if (!placed[1 + i].is_shard(0)) continue;
    divides_weights = true;
    rule.inputs[1 + i] = rule.inputs[1 + n + i] = placed[1 + i];
    rule.outputs[i] = Placement::shard(1, placed[1 + i].parts);
  }
  // A rank's rows of W meet all tokens, or a rank's tokens meet all rows of W.
  if (!divides_weights && placed[0].is_shard(0)) {
    rule.inputs[0] = placed[0];
    rule.outputs.assign(n, placed[0]);
  }
  return rule;
}

Attrs localize_linear(const Attrs& attrs, TypeList, const ShardRule& rule, int rank) {
  auto local = attrs.as<LinearAttrs>();
  local.bias_elsewhere = rule.outputs[0].is_partial() && rank != 0;
  return Attrs::of(local);
}

void multiply(const TensorView& x, const TensorView& w, const TensorView* bias, int64_t rows,
              const TensorView& y) {
  std::vector<std::vector<float>> weights;
  for (int64_t n = 0; n < w.shape[0]; ++n) weights.push_back(load_row(w, n));
  std::vector<float> b(weights.size());
  if (bias) b = load_row(*bias, 0);
  for (int64_t t = 0; t < rows; ++t) {
    const std::vector<float> in = load_row(x, t);
    std::vector<float> out(weights.size());
    for (size_t n = 0; n < out.size(); ++n) {
      double sum = b[n];
      for (size_t k = 0; k < in.size(); ++k) sum += static_cast<double>(in[k]) * weights[n][k];
      out[n] = static_cast<float>(sum);
    }
    store_row(y, t, out);
  }
}

void reference_linear(const OpCall& call) {
  const auto& attrs = call.attrs<LinearAttrs>();
  const size_t n = attrs.n;
  for (size_t i = 0; i < n; ++i) {
    const TensorView& bias = call.in[1 + n + i];
    const bool has_bias = bias.data != nullptr && !attrs.bias_elsewhere;
    multiply(call.in[0], call.in[1 + i], has_bias ? &bias : nullptr, call.rows(), call.out[i]);
  }
}

std::vector<ValueType> infer_gated(const Attrs&, TypeList in) {
  require_rank("gated", "gate", in[0], 2);
  if (!(in[0] == in[1])) {
    fail(ErrorCode::kInvalidArgument, "gated: gate is {}, up is {}", to_string(in[0]),
         to_string(in[1]));
  }
  return {in[0]};
}

Cost cost_gated(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 5);
}

ShardRule shard_gated(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  if (placed[0] == placed[1] && placed[0].is_shard()) return {{placed[0], placed[0]}, {placed[0]}};
  return replicate_all(2, 1);
}

void gate_rows(Activation activation, const TensorView& gate, const TensorView& up, int64_t rows,
               const TensorView& y) {
  for (int64_t t = 0; t < rows; ++t) {
    std::vector<float> g = load_row(gate, t);
    const std::vector<float> u = load_row(up, t);
    for (size_t i = 0; i < g.size(); ++i) g[i] = activate(activation, g[i]) * u[i];
    store_row(y, t, g);
  }
}

void reference_gated(const OpCall& call) {
  gate_rows(call.attrs<GatedAttrs>().activation, call.in[0], call.in[1], call.rows(), call.out[0]);
}

std::vector<ValueType> infer_gated_linear(const Attrs&, TypeList in) {
  return infer_gated({}, infer_linear(Attrs::of(LinearAttrs{.n = 2, .dtype = in[0].dtype}), in));
}

Cost cost_gated_linear(const Attrs&, TypeList in, TypeList out, const Work& work) {
  Cost cost = elementwise_cost(in, out, work, 5);
  cost.flops += 4 * live_elems(out[0], work) * static_cast<double>(in[0].shape[1]);
  return cost;
}

ShardRule shard_gated_linear(const Attrs&, TypeList in, std::span<const Placement> placed, int P) {
  ShardRule rule = shard_linear(Attrs::of(LinearAttrs{2}), in, placed, P);
  if (rule.outputs[0] != rule.outputs[1]) return replicate_all(5, 1);
  rule.outputs.resize(1);
  return rule;
}

void reference_gated_linear(const OpCall& call) {
  std::vector<std::byte> bytes(2 * call.rows() * call.out[0].cols() * 4);
  const Shape shape = {call.rows(), call.out[0].cols()};
  const TensorView gate = make_view(bytes.data(), DType::f32, shape);
  const TensorView up = make_view(bytes.data() + bytes.size() / 2, DType::f32, shape);
  multiply(call.in[0], call.in[1], call.in[3].data ? &call.in[3] : nullptr, call.rows(), gate);
  multiply(call.in[0], call.in[2], call.in[4].data ? &call.in[4] : nullptr, call.rows(), up);
  gate_rows(call.attrs<GatedAttrs>().activation, gate, up, call.rows(), call.out[0]);
}

}  // namespace

const OpDef kLinear = {.kind = "linear",
                       .infer = infer_linear,
                       .cost = cost_linear,
                       .shard = shard_linear,
                       .localize = localize_linear,
                       .reference = reference_linear,
                       .rate = {.typed_input = 1}};

const OpDef kGated = {.kind = "gated",
                      .infer = infer_gated,
                      .cost = cost_gated,
                      .shard = shard_gated,
                      .reference = reference_gated};

const OpDef kGatedLinear = {.kind = "gated_linear",
                            .infer = infer_gated_linear,
                            .cost = cost_gated_linear,
                            .shard = shard_gated_linear,
                            .reference = reference_gated_linear,
                            .rate = {.kind = "linear", .typed_input = 1}};

float activate(Activation activation, float x) {
  if (activation == Activation::silu) return x / (1 + std::exp(-x));
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

std::string_view to_string(Activation activation) {
  return activation == Activation::silu ? "silu" : "gelu_tanh";
}

std::vector<ValueId> linears(Builder& b, ValueId x, const std::vector<LinearWeights>& weights,
                             DType dtype) {
  std::vector<ValueId> inputs = {x};
  for (const LinearWeights& w : weights) inputs.push_back(w.w);
  for (const LinearWeights& w : weights) inputs.push_back(w.bias);
  return b.op(kLinear,
              Attrs::of(LinearAttrs{.n = static_cast<int>(weights.size()), .dtype = dtype}),
              inputs);
}

ValueId linear(Builder& b, ValueId x, LinearWeights weights, DType dtype) {
  return linears(b, x, {weights}, dtype)[0];
}

ValueId gated(Builder& b, ValueId gate, ValueId up, GatedAttrs attrs) {
  return b.op1(kGated, Attrs::of(attrs), {gate, up});
}

}  // namespace braid::ops
