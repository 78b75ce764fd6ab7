#pragma once

#include <vector>

#include "braid/program/builder.h"

namespace braid::ops {

// Attention without a cache, over B sequences with equal lengths: for each sequence and head
//   out = softmax(scale * q k^T + bias) v
// A sequence may come in consecutive parts, as text and image in a two-stream transformer. Part i
// of the queries is [B * Lq_i, H * D], sequence after sequence. Keys have separate parts, [B *
// Lk_i, Hkv * D], and so cross-attention is the same op. Query head h reads KV head h / (H / Hkv).
//
// Inputs: q_0 .. q_{q_parts-1}, k_0 .., v_0 .. (any float, all with the same dtype), then two
// optional inputs:
//   bias     f32 [H, Lq, Lk]: added to the scores of every sequence
//   key_len  i32 [B]: sequence b's keys from key_len[b] on are not seen
// Outputs: a value per query part, with the part's type. A query that sees no key gets zeros.
// Sharding: whole groups of query heads with their KV heads; rows of a sequence's queries.
struct DenseAttentionAttrs {
  int64_t head_dim = 0;  // D
  int64_t batch = 1;     // B
  int q_parts = 1;
  int kv_parts = 1;
  float scale = 1;
  bool causal = false;  // query i sees keys 0 .. i; Lq = Lk
  bool operator==(const DenseAttentionAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("head_dim", head_dim);
    if (batch != 1) f("batch", batch);
    if (q_parts != 1) f("q_parts", q_parts);
    if (kv_parts != 1) f("kv_parts", kv_parts);
    f("scale", scale);
    if (causal) f("causal", causal);
  }

  size_t first_key() const { return static_cast<size_t>(q_parts); }
  size_t first_value() const { return first_key() + static_cast<size_t>(kv_parts); }
  size_t bias() const { return first_value() + static_cast<size_t>(kv_parts); }
  size_t key_len() const { return bias() + 1; }
};

extern const OpDef kDenseAttention;

struct DenseAttentionInputs {
  std::vector<ValueId> q;
  std::vector<ValueId> k;
  std::vector<ValueId> v;
  ValueId bias = kNoValue;
  ValueId key_len = kNoValue;
};
// Sets q_parts and kv_parts itself.
std::vector<ValueId> dense_attention(Builder& b, const DenseAttentionInputs& in,
                                     DenseAttentionAttrs attrs);

}  // namespace braid::ops
