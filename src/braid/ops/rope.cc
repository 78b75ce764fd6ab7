#include "braid/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer_rope(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<RopeAttrs>();
  require_rank("rope", "x", in[0], 2);
  require_dtype("rope", "positions", in[1], DType::i32);
  require_dim("rope", "positions", in[1], 0, in[0].shape[0]);
  if (in[0].shape[1] % a.head_dim != 0) {
    fail(ErrorCode::kInvalidArgument, "rope: x is {}, no whole heads of {}", to_string(in[0]),
         a.head_dim);
  }
  if (a.rotary_dim > a.head_dim || a.rotary_dim % 2 != 0) {
    fail(ErrorCode::kInvalidArgument, "rope: rotary_dim {} of head_dim {}", a.rotary_dim,
         a.head_dim);
  }
  if (in[2].shape.rank() != 0) require_dim("rope", "factors", in[2], 0, a.rotary_dim / 2);
  return {in[0]};
}

Cost cost_rope(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 3);
}

ShardRule shard_rope(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(3, 1);
  if (placed[0].is_shard()) rule.inputs[0] = rule.outputs[0] = placed[0];
  if (placed[0].is_shard(0)) rule.inputs[1] = placed[0];
  return rule;
}

// Llama-3: long wavelengths are slowed by `factor`, short ones kept, those between blended.
double scale_llama3(double frequency, const RopeAttrs& a) {
  const double turns = static_cast<double>(a.original_context) * frequency / (2 * std::numbers::pi);
  if (turns < a.low_freq_factor) return frequency / a.factor;
  if (turns > a.high_freq_factor) return frequency;
  const double keep = (turns - a.low_freq_factor) / (a.high_freq_factor - a.low_freq_factor);
  return (1 - keep) * frequency / a.factor + keep * frequency;
}

// The pair whose wavelength makes `turns` turns over the original context (YaRN, section 3.2).
double yarn_pair(double turns, const RopeAttrs& a) {
  return static_cast<double>(a.rotary_dim) *
         std::log(static_cast<double>(a.original_context) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(a.theta)));
}

double scale_yarn(double frequency, int64_t pair, const RopeAttrs& a) {
  double low = yarn_pair(a.beta_fast, a);
  double high = yarn_pair(a.beta_slow, a);
  if (a.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(a.rotary_dim - 1));
  if (low == high) high += 0.001;
  const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  return frequency / a.factor * ramp + frequency * (1 - ramp);
}

void rotate(float* head, double position, const std::vector<double>& frequencies,
            const RopeAttrs& a) {
  const int64_t pairs = a.rotary_dim / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    const double angle = position * frequencies[i];
    const double c = std::cos(angle) * a.attention_factor;
    const double s = std::sin(angle) * a.attention_factor;
    float& x = head[a.pairing == RopePairing::half ? i : 2 * i];
    float& y = head[a.pairing == RopePairing::half ? i + pairs : 2 * i + 1];
    const double x0 = x, y0 = y;
    x = static_cast<float>(x0 * c - y0 * s);
    y = static_cast<float>(x0 * s + y0 * c);
  }
}

void reference_rope(const OpCall& call) {
  const auto& a = call.attrs<RopeAttrs>();
  const std::vector<double> frequencies = rope_frequencies(a, call.in[2].as<const float>());
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::vector<float> row = load_row(call.in[0], t);
    for (size_t h = 0; h < row.size(); h += static_cast<size_t>(a.head_dim)) {
      rotate(&row[h], call.in[1].as<const int32_t>()[t], frequencies, a);
    }
    store_row(call.out[0], t, row);
  }
}

}  // namespace

std::string_view to_string(RopePairing pairing) {
  return pairing == RopePairing::half ? "half" : "interleaved";
}

std::string_view to_string(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::none:
      return "none";
    case RopeScaling::linear:
      return "linear";
    case RopeScaling::llama3:
      return "llama3";
    case RopeScaling::yarn:
      return "yarn";
  }
  return "?";
}

std::vector<double> rope_frequencies(const RopeAttrs& a, const float* factors) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < a.rotary_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(a.rotary_dim);
    double frequency = std::pow(static_cast<double>(a.theta), exponent);
    if (factors) frequency /= factors[i];
    switch (a.scaling) {
      case RopeScaling::none:
        break;
      case RopeScaling::linear:
        frequency /= a.factor;
        break;
      case RopeScaling::llama3:
        frequency = scale_llama3(frequency, a);
        break;
      case RopeScaling::yarn:
        frequency = scale_yarn(frequency, i, a);
        break;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

const OpDef kRope = {.kind = "rope",
                     .infer = infer_rope,
                     .cost = cost_rope,
                     .shard = shard_rope,
                     .reference = reference_rope};

ValueId rope(Builder& b, ValueId x, ValueId positions, ValueId factors, const RopeAttrs& attrs) {
  return b.op1(kRope, Attrs::of(attrs), {x, positions, factors});
}

}  // namespace braid::ops
