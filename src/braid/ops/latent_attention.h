#pragma once

#include "braid/ops/attention.h"
#include "braid/ops/rope.h"

namespace braid::ops {

// Multi-head latent attention (DeepSeek-V2): keys and values of all heads come from a single latent
// c of R numbers a token; keys have Dr further columns, rotated and shared by all heads. The cache
// keeps c and the Dr columns: f32, f16 or bf16 [NB, BS, 1, R + Dr].

// cache[slot of t] = norm(kv[t, 0 .. R)) | rope(kv[t, R ..]). Inputs: kv [T, R + Dr] in any float,
// norm [R], positions i32 [T], slots i32 [T] (< 0: not stored), the cache, which the op writes.
// rope turns whole heads with Dr columns.
struct LatentAppendAttrs {
  RopeAttrs rope;
  float eps = 1e-6f;
  bool operator==(const LatentAppendAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    rope.fields(f);
    f("eps", eps);
  }
};
extern const OpDef kLatentAppend;

// Head h has the key [k_h c | k_r] and the value v_h c, where k_h [Dn, R] and v_h [Dv, R] are its
// parts of k_b and v_b; its query is q_n | rope(q_r). Absorbed form: q_n k_h meets the latents
// themselves, and v_h what they sum up to, so that a key is read once for all heads.
//   out[t, h] = v_h sum over s of p_s c_s, p = softmax(scale (q_n k_h . c_s + q_r . k_r,s))
// Plain form, for prompts: the keys and values of each head are made, a piece at a time.
// Inputs: q [T, H (Dn + Dr)] of any float, positions i32 [T], k_b [H, Dn, R], or [H, R, Dn] where
// `transposed`, v_b [H, Dv, R], the cache, q_start, kv_len and page_table as of kAttention.
// Output: out [T, H Dv] with the dtype of q.
// Sharding: a rank has whole heads; the cache is whole on every rank.
struct LatentAttentionAttrs {
  RopeAttrs rope;
  float scale = 1;
  bool transposed = false;
  bool operator==(const LatentAttentionAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    rope.fields(f);
    f("scale", scale);
    f("transposed", transposed);
  }
};
extern const OpDef kLatentAttention;

// A call's sizes, from types or views of its inputs.
struct LatentSizes {
  int64_t H, Dn, Dr, Dv, R;
  template <class Operand>
  LatentSizes(const LatentAttentionAttrs& a, std::span<const Operand> in)
      : H(in[2].shape[0]),
        Dn(in[2].shape[a.transposed ? 2 : 1]),
        Dr(a.rope.head_dim),
        Dv(in[3].shape[1]),
        R(in[2].shape[a.transposed ? 1 : 2]) {}

  // A head's multiplications: `pairs` (query, key), `tokens` queries, `keys` keys.
  double absorbed(double pairs, double tokens) const;
  double plain(double pairs, double keys) const;
};

// Whether keys and values by head take fewer operations than the absorbed form, for the last
// `tokens` of a sequence of `keys`. Never below kFewestPlainTokens.
constexpr int64_t kFewestPlainTokens = 16;
bool takes_plain_form(const LatentSizes& sizes, int64_t tokens, int64_t keys);
// The most tokens in a sequence that may take the absorbed form, for any history.
int64_t most_absorbed_tokens(const LatentSizes& sizes);

struct LatentWeights {
  ValueId norm = kNoValue;
  ValueId k_b = kNoValue;
  ValueId v_b = kNoValue;
};
// Appends kv to the cache and attends to it.
ValueId latent_attention(Builder& b, ValueId q, ValueId kv, ValueId positions, ValueId cache,
                         const AttentionMeta& meta, const LatentWeights& weights,
                         const LatentAppendAttrs& append, const LatentAttentionAttrs& attrs);

// y = rope(x) for a head of attrs.head_dim columns, all rotated; inv_freq from rope_frequencies. In
// f64; x may be y.
void turn(const RopeAttrs& attrs, const std::vector<double>& inv_freq, int64_t position,
          const float* x, float* y);

}  // namespace braid::ops
