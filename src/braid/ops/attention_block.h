#pragma once

#include "braid/ops/attention.h"
#include "braid/ops/fusion.h"
#include "braid/ops/norm_linear.h"
#include "braid/ops/rope_append.h"

namespace braid::ops {

// Fused norm_linear of q, k and v, or linear without a norm, rope_append, attention and, with a
// projection, the linear that alone reads attention's result. Inputs; an absent input has no value:
//   a [T, C], b [T, C], norm w [C]                          for norm_linear; for linear a alone
//   W_q, W_k, W_v [N, C], their biases [N]
//   positions, factors, slots, cache k, cache v, q_norm, k_norm     for rope_append
//   q_start, kv_len, page_table                                     for attention
//   W_o [M, Hq * D], its bias [M]                                   for the projection
// Outputs: a + b if b is present; attention's result [T, Hq * D], or the projection's [T, M].
// For backends with a kernel for the whole block. Appears after lowering only.
struct AttentionBlockAttrs {
  NormLinearAttrs qkv;
  bool normed = true;  // false: of `qkv` only the linear
  RopeAppendAttrs rope;
  AttentionAttrs attention;
  bool projects = false;
  LinearAttrs out;  // if projected
  bool operator==(const AttentionBlockAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    if (normed) qkv.fields(f);
    if (!normed) qkv.linear.fields(f);
    rope.fields(f);
    attention.fields(f);
    if (projects) f("projects", projects);
    if (projects) out.fields(f);
  }
};

// The operands of an attention block, in input order.
enum class BlockInput : uint8_t {
  a,
  b,
  norm,
  wq,
  wk,
  wv,
  bq,
  bk,
  bv,
  positions,
  factors,
  slots,
  cache_k,
  cache_v,
  q_norm,
  k_norm,
  q_start,
  kv_len,
  page_table,
  wo,
  bo,
};
constexpr size_t kBlockInputs = 19;  // without the projection
constexpr size_t kProjectedBlockInputs = 21;

extern const OpDef kAttentionBlock;

// norm_linear or linear, rope_append, attention, with or without linear, as a single
// attention_block, for strategies or backends that ask. Fits few_token_fusions()'s output.
const std::vector<Fusion>& attention_block_fusions(bool projects);

}  // namespace braid::ops
