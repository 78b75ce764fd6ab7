#pragma once

#include <fmt/format.h>

#include "braid/ops/attention.h"
#include "braid/ops/embedding.h"
#include "braid/ops/fusion.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/rope.h"

// A decode step of a small decoder, of the shapes that relays take.
namespace braid::testing_relay {

struct StepShape {
  int64_t C = 512, F = 1376, Hq = 8, Hkv = 4, D = 64, V = 600;
  int64_t tokens = 1, page_size = 16;
  int layers = 2;
  float softcap = 0;
  std::optional<ops::DualChunks> dual;
  bool biases = false;
  DType weights = DType::bf16, cache = DType::bf16, activations = DType::bf16;
  int odd_layer = -1;  // a layer with weights of `odd`
  DType odd = DType::f16;
};

// As the model writes it.
inline Program decoder(const StepShape& s) {
  Builder b("decoder", {.token = s.tokens, .sequence = s.tokens, .row = s.tokens});
  const auto ints = [&](const char* name, const Shape& shape, BatchAxis axis) {
    return b.input(name, {DType::i32, shape, axis});
  };
  const int64_t T = s.tokens;
  const ValueId ids = ints("ids", {T}, BatchAxis::token);
  const ValueId positions = ints("positions", {T}, BatchAxis::token);
  const ops::AttentionMeta meta = {
      ints("slots", {T}, BatchAxis::token), ints("q_start", {T + 1}, BatchAxis::none),
      ints("kv_len", {T}, BatchAxis::sequence), ints("pages", {T, 4}, BatchAxis::sequence)};
  DType weights = s.weights;
  const auto w = [&](const std::string& name, int64_t n, int64_t k, bool bias = false) {
    ops::LinearWeights both{b.weight(name, {weights, {n, k}})};
    if (bias) both.bias = b.weight(name + ".bias", {DType::bf16, {n}});
    return both;
  };
  const auto norm = [&](const std::string& name, ValueId x) {
    return ops::rms_norm(b, x, b.weight(name, {DType::bf16, {s.C}}),
                         {.group = s.C, .dtype = s.activations});
  };
  ValueId x = ops::embedding(b, ids, b.weight("token_embd", {DType::bf16, {s.V, s.C}}));
  for (int i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("layers.{}", i);
    weights = i == s.odd_layer ? s.odd : s.weights;
    const auto layer_scope = b.scope(layer);
    {
      const ValueId normed = norm(layer + ".attn_norm", x);
      const auto scope = b.scope("attn");
      const auto qkv = ops::linears(
          b, normed,
          {w(layer + ".q", s.Hq * s.D, s.C, s.biases), w(layer + ".k", s.Hkv * s.D, s.C, s.biases),
           w(layer + ".v", s.Hkv * s.D, s.C, s.biases)},
          s.activations);
      const ops::RopeAttrs rope = {.head_dim = s.D, .rotary_dim = s.D};
      const ValueId q = ops::rope(b, qkv[0], positions, kNoValue, rope);
      const ValueId k = ops::rope(b, qkv[1], positions, kNoValue, rope);
      const ValueType cache = {s.cache, {8, s.page_size, s.Hkv, s.D}};
      const ops::KvCache kv = {b.state(layer + ".cache_k", cache),
                               b.state(layer + ".cache_v", cache)};
      ops::kv_append(b, k, qkv[2], meta, kv, s.D);
      const ValueId out = ops::attention(
          b, q, kv, meta,
          {.head_dim = s.D, .group = s.Hq / s.Hkv, .softcap = s.softcap, .dual = s.dual});
      x = ops::add(b, x, ops::linear(b, out, w(layer + ".o", s.C, s.Hq * s.D), s.activations));
    }
    const ValueId normed = norm(layer + ".mlp_norm", x);
    const auto scope = b.scope("mlp");
    const auto up = ops::linears(
        b, normed, {w(layer + ".gate", s.F, s.C), w(layer + ".up", s.F, s.C)}, s.activations);
    const ValueId y = ops::gated(b, up[0], up[1], {});
    x = ops::add(b, x, ops::linear(b, y, w(layer + ".down", s.C, s.F), s.activations));
  }
  weights = s.weights;
  return b.finish({ops::linear(b, norm("output_norm", x), w("lm_head", s.V, s.C))});
}

// As a GPU's planner fuses it.
inline Program fused_decoder(const StepShape& s) {
  return fuse(fuse(decoder(s), fusions()), few_token_fusions());
}

}  // namespace braid::testing_relay
