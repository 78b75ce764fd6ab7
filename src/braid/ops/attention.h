#pragma once

#include <optional>

#include "braid/ops/dual_chunks.h"
#include "braid/program/builder.h"

namespace braid::ops {

// Metadata of a step's attention: each token's sequence, and each sequence's places of keys.
// Written by the host for each step, equal for every layer.
struct AttentionMeta {
  ValueId slots = kNoValue;    // i32 [T]: page * BS + offset where token t's key goes; < 0: nowhere
  ValueId q_start = kNoValue;  // i32 [S + 1]: tokens q_start[s] .. q_start[s + 1] are sequence s'
  ValueId kv_len = kNoValue;   // i32 [S]: keys of sequence s, including this step's
  ValueId page_table = kNoValue;  // i32 [S, P]: pages of sequence s, in order
};

// A layer's paged KV cache: f32, f16 or bf16 [NB, BS, Hkv, D] each.
struct KvCache {
  ValueId k = kNoValue;
  ValueId v = kNoValue;
};

// Writes k[t], v[t] (any float [T, Hkv * D]) to their slots.
struct KvAppendAttrs {
  int64_t head_dim = 0;
  bool operator==(const KvAppendAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("head_dim", head_dim);
  }
};

extern const OpDef kKvAppend;  // (k, v, slots, cache k, cache v) -> ()
void kv_append(Builder& b, ValueId k, ValueId v, const AttentionMeta& meta, const KvCache& cache,
               int64_t head_dim);

// Causal attention of q [T, Hq * D] over the cache. Query i of a sequence's n new tokens stands at
// position kv_len - n + i and sees keys up to itself, at most `window` of them when window > 0.
// Query head h reads KV head (h + head_offset) / group: uneven parts of the heads keep their own
// KV heads. out = softmax(softcap(scale * q k^T)) v, [T, Hq * D].
struct AttentionAttrs {
  int64_t head_dim = 0;
  int64_t group = 1;  // query heads per KV head
  int64_t head_offset = 0;
  float scale = 1;
  int64_t window = 0;
  float softcap = 0;  // s -> softcap * tanh(s / softcap) when > 0
  std::optional<DualChunks> dual;
  bool operator==(const AttentionAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("head_dim", head_dim);
    f("group", group);
    if (head_offset) f("head_offset", head_offset);
    f("scale", scale);
    if (window) f("window", window);
    if (softcap > 0) f("softcap", softcap);
    if (dual) dual->fields(f);
  }
};

extern const OpDef kAttention;  // (q, cache k, cache v, q_start, kv_len, page_table) -> out
ValueId attention(Builder& b, ValueId q, const KvCache& cache, const AttentionMeta& meta,
                  const AttentionAttrs& attrs);

}  // namespace braid::ops
