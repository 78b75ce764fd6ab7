#pragma once

#include <string>

#include "braid/ops/attention.h"
#include "braid/ops/embedding.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/rope.h"

// A small decoder as the models write it, for tests of what is done to Programs.
namespace braid::testing_decoder {

constexpr int64_t kD = 16, kHq = 8, kHkv = 4, kC = 128, kF = 256, kV = 100;

// A decoder as the models write it.
inline Program decoder(int64_t T, int layers, DType activations = DType::f32, int64_t S = 2) {
  Builder b("decoder", {.token = T, .sequence = S, .row = 3});
  const auto ints = [&](const char* name, const Shape& shape, BatchAxis axis) {
    return b.input(name, {DType::i32, shape, axis});
  };
  const ValueId ids = ints("ids", {T}, BatchAxis::token);
  const ValueId positions = ints("positions", {T}, BatchAxis::token);
  const ops::AttentionMeta meta = {
      ints("slots", {T}, BatchAxis::token), ints("q_start", {S + 1}, BatchAxis::none),
      ints("kv_len", {S}, BatchAxis::sequence), ints("pages", {S, 4}, BatchAxis::sequence)};
  const ValueId rows = ints("rows", {3}, BatchAxis::row);
  const auto w = [&](const std::string& name, int64_t n, int64_t k) {
    return ops::LinearWeights{b.weight(name, {DType::f16, {n, k}})};
  };
  const auto norm = [&](const std::string& name, ValueId x) {
    return ops::rms_norm(b, x, b.weight(name, {DType::f32, {kC}}),
                         {.group = kC, .dtype = activations});
  };
  ValueId x = ops::embedding(b, ids, b.weight("token_embd", {DType::f16, {kV, kC}}));
  for (int i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("layers.{}", i);
    const auto layer_scope = b.scope(layer);
    {
      const ValueId normed = norm(layer + ".attn_norm", x);
      const auto scope = b.scope("attn");
      const auto qkv =
          ops::linears(b, normed,
                       {w(layer + ".attn.q", kHq * kD, kC), w(layer + ".attn.k", kHkv * kD, kC),
                        w(layer + ".attn.v", kHkv * kD, kC)},
                       activations);
      const ops::RopeAttrs rope = {.head_dim = kD, .rotary_dim = kD};
      const ValueId q = ops::rope(b, qkv[0], positions, kNoValue, rope);
      const ValueId k = ops::rope(b, qkv[1], positions, kNoValue, rope);
      const ValueType cache = {DType::f16, {4, 16, kHkv, kD}};
      const ops::KvCache kv = {b.state(layer + ".k", cache), b.state(layer + ".v", cache)};
      ops::kv_append(b, k, qkv[2], meta, kv, kD);
      const ValueId out = ops::attention(b, q, kv, meta, {.head_dim = kD, .group = kHq / kHkv});
      x = ops::add(b, x, ops::linear(b, out, w(layer + ".attn.o", kC, kHq * kD), activations));
    }
    const ValueId normed = norm(layer + ".mlp_norm", x);
    const auto scope = b.scope("mlp");
    const auto up = ops::linears(
        b, normed, {w(layer + ".mlp.gate", kF, kC), w(layer + ".mlp.up", kF, kC)}, activations);
    const ValueId y = ops::gated(b, up[0], up[1], {});
    x = ops::add(b, x, ops::linear(b, y, w(layer + ".mlp.down", kC, kF), activations));
  }
  x = norm("output_norm", ops::gather_rows(b, x, rows));
  return b.finish({ops::linear(b, x, w("lm_head", kV, kC))});
}

}  // namespace braid::testing_decoder
