#include "braid/model/decoder.h"

#include <algorithm>
#include <cmath>

#include "braid/model/forward_inputs.h"
#include "braid/ops/embedding.h"
#include "braid/ops/experts.h"
#include "braid/ops/latent_attention.h"
#include "braid/ops/norm.h"

namespace braid::decoder {
namespace {

Extents capacity_of(const ModelConfig& config, const ForwardShape& shape) {
  Extents capacity = shape.capacity;
  if (config.experts) capacity.expert_row = capacity.token * config.experts->route.top_k;
  return capacity;
}

class Forward {
 public:
  Forward(const ModelConfig& config, const ForwardShape& shape, const WeightDtype& dtype_of,
          bool out_norms)
      : c_(config),
        shape_(shape),
        out_norms_(out_norms),
        dtype_of_(dtype_of),
        b_(config.family, capacity_of(config, shape)),
        in_(forward_inputs(b_, shape)) {}

  Program run() {
    if (c_.rope_factors) factors_ = weight("rope_factors", {c_.rope.rotary_dim / 2});

    ValueId x = ops::embedding(b_, in_.token_ids, weight("token_embd", {c_.V, c_.C}));
    for (int64_t i = 0; i < c_.layers; ++i) x = layer(i, x);
    if (!shape_.every_row) x = ops::gather_rows(b_, x, in_.rows);
    x = norm("output_norm", x, c_.C);
    return b_.finish({ops::linear(b_, x, {weight("lm_head", {c_.V, c_.C})}, DType::f32)});
  }

 private:
  ValueId layer(int64_t i, ValueId x) {
    const std::string name = fmt::format("layers.{}", i);
    const auto scope = b_.scope(name);
    const ValueId to_attend = norm(name + ".attn_norm", x, c_.C);
    x = add(x, name + ".attn",
            c_.latent ? latent_attention(name, to_attend) : attention(name, i, to_attend));
    const ValueId in = norm(name + ".mlp_norm", x, c_.C);
    const auto block = b_.scope("mlp");
    return add(x, name + ".mlp",
               c_.sparse(i) ? experts(name + ".mlp", in) : mlp(name + ".mlp", in, c_.F));
  }

  ValueId add(ValueId x, const std::string& name, ValueId y) {
    return ops::add(b_, x, out_norms_ ? norm(name + ".out_norm", y, c_.C) : y);
  }

  ValueId attention(const std::string& layer, int64_t index, ValueId x) {
    const auto scope = b_.scope("attn");
    const std::string name = layer + ".attn";
    const int64_t q_dim = c_.Hq * c_.D, kv_dim = c_.Hkv * c_.D;
    const auto qkv = ops::linears(b_, x,
                                  {weights(name + ".q", {q_dim, c_.C}, c_.qkv_bias),
                                   weights(name + ".k", {kv_dim, c_.C}, c_.qkv_bias),
                                   weights(name + ".v", {kv_dim, c_.C}, c_.qkv_bias)},
                                  shape_.activations);
    ValueId q = qkv[0], k = qkv[1];
    if (c_.qk_norm) {
      q = norm(name + ".q_norm", q, c_.D);
      k = norm(name + ".k_norm", k, c_.D);
    }
    q = ops::rope(b_, q, in_.positions, factors_, c_.rope);
    k = ops::rope(b_, k, in_.positions, factors_, c_.rope);
    const ValueType cache = {shape_.kv_dtype, {shape_.pages, shape_.page_size, c_.Hkv, c_.D}};
    const ops::KvCache kv = {b_.state(layer + ".kv.k", cache), b_.state(layer + ".kv.v", cache)};
    ops::kv_append(b_, k, qkv[2], in_.meta, kv, c_.D);
    const ValueId out =
        ops::attention(b_, q, kv, in_.meta,
                       {.head_dim = c_.D,
                        .group = c_.Hq / c_.Hkv,
                        .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c_.D))),
                        .window = c_.windows[index],
                        .dual = chunks()});
    return ops::linear(b_, out, weights(name + ".o", {c_.C, q_dim}, c_.o_bias), shape_.activations);
  }

  // Nothing where the model's context or the cache ends first: fewer keys are met as they are.
  std::optional<ops::DualChunks> chunks() const {
    if (!c_.dual) return {};
    const int64_t room = std::min(c_.context, shape_.pages_per_sequence * shape_.page_size);
    return room > c_.dual->chunks.plain() ? std::optional(c_.dual->chunks) : std::nullopt;
  }

  ValueId latent_attention(const std::string& layer, ValueId x) {
    const auto scope = b_.scope("attn");
    const std::string name = layer + ".attn";
    const LatentConfig& l = *c_.latent;
    const int64_t q_dim = c_.Hq * (l.Dn + l.Dr), kv_dim = l.R + l.Dr;
    const ops::LinearWeights kv_a = weights(name + ".kv_a", {kv_dim, c_.C}, c_.qkv_bias);
    ValueId q = kNoValue, kv = kNoValue;
    if (l.q_rank == 0) {
      const auto both =
          ops::linears(b_, x, {{weight(name + ".q", {q_dim, c_.C})}, kv_a}, shape_.activations);
      q = both[0], kv = both[1];
    } else {
      const auto both = ops::linears(
          b_, x, {weights(name + ".q_a", {l.q_rank, c_.C}, c_.qkv_bias), kv_a}, shape_.activations);
      q = ops::rms_norm(b_, both[0], weight(name + ".q_a_norm", {l.q_rank}),
                        {l.eps, l.q_rank, shape_.activations});
      q = ops::linear(b_, q, {weight(name + ".q_b", {q_dim, l.q_rank})}, shape_.activations);
      kv = both[1];
    }
    const Shape k_b = l.transposed ? Shape{c_.Hq, l.R, l.Dn} : Shape{c_.Hq, l.Dn, l.R};
    const ops::LatentWeights held = {.norm = weight(name + ".kv_a_norm", {l.R}),
                                     .k_b = weight(name + ".k_b", k_b),
                                     .v_b = weight(name + ".v_b", {c_.Hq, l.Dv, l.R})};
    const ValueId cache = b_.state(layer + ".kv.latent",
                                   {shape_.kv_dtype, {shape_.pages, shape_.page_size, 1, kv_dim}});
    const double scale = l.logit_scale / std::sqrt(static_cast<double>(l.Dn + l.Dr));
    const ValueId out = ops::latent_attention(
        b_, q, kv, in_.positions, cache, in_.meta, held, {.rope = c_.rope, .eps = l.eps},
        {.rope = c_.rope, .scale = static_cast<float>(scale), .transposed = l.transposed});
    return ops::linear(b_, out, weights(name + ".o", {c_.C, c_.Hq * l.Dv}, c_.o_bias),
                       shape_.activations);
  }

  ValueId mlp(const std::string& name, ValueId x, int64_t F) {
    const auto gate_up = ops::linears(b_, x,
                                      {weights(name + ".gate", {F, c_.C}, c_.mlp_bias),
                                       weights(name + ".up", {F, c_.C}, c_.mlp_bias)},
                                      shape_.activations);
    const ValueId y = ops::gated(b_, gate_up[0], gate_up[1], {c_.activation});
    return ops::linear(b_, y, weights(name + ".down", {c_.C, F}, c_.mlp_bias), shape_.activations);
  }

  ValueId experts(const std::string& name, ValueId x) {
    const ExpertConfig& e = *c_.experts;
    const ValueId logits = ops::linear(b_, x, {weight(name + ".router", {e.E, c_.C})}, DType::f32);
    const ValueId bias = e.choice_bias ? weight(name + ".choice.bias", {e.E}) : kNoValue;
    const ops::Route route = ops::route(b_, logits, bias, e.route);
    ValueId shared = kNoValue, gate = kNoValue;
    if (e.shared_F != 0) {
      const auto scope = b_.scope("shared");
      shared = mlp(name + ".shared", x, e.shared_F);
      if (e.shared_gate) {
        gate = ops::linear(b_, x, {weight(name + ".shared_gate", {1, c_.C})}, DType::f32);
      }
    }
    const auto scope = b_.scope("experts");
    const ops::ExpertWeights weights = {.gate = {weight(name + ".experts.gate", {e.E, e.F, c_.C})},
                                        .up = {weight(name + ".experts.up", {e.E, e.F, c_.C})},
                                        .down = {weight(name + ".experts.down", {e.E, c_.C, e.F})}};
    return ops::experts(b_, x, route, weights, c_.activation, shared, gate);
  }

  ValueId norm(const std::string& name, ValueId x, int64_t group) {
    return ops::rms_norm(b_, x, weight(name, {group}), {c_.eps, group, shape_.activations});
  }

  ValueId weight(const std::string& name, const Shape& shape) {
    return b_.weight(name, {dtype_of_(name), shape});
  }

  ops::LinearWeights weights(const std::string& name, const Shape& shape, bool bias) {
    return {weight(name, shape), bias ? weight(name + ".bias", {shape[0]}) : kNoValue};
  }

  const ModelConfig& c_;
  const ForwardShape& shape_;
  const bool out_norms_;
  const WeightDtype& dtype_of_;
  Builder b_;
  const ForwardInputs in_;
  ValueId factors_ = kNoValue;
};

}  // namespace

Program forward(const ModelConfig& config, const ForwardShape& shape, const WeightDtype& dtype_of) {
  return Forward(config, shape, dtype_of, false).run();
}

Program forward_with_out_norms(const ModelConfig& config, const ForwardShape& shape,
                               const WeightDtype& dtype_of) {
  return Forward(config, shape, dtype_of, true).run();
}

}  // namespace braid::decoder
