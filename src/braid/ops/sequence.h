#pragma once

#include "braid/program/builder.h"

// Reads and writes of sequence-parallel attention in a model: rows of a rank's tokens as a single
// sequence [B = 1, L, heads, D], and rows of the KV cache in any pages.
namespace braid::ops {

// x [n, H * D], any batch axis -> [sequence = 1, n, H, D], and back to this rank's tokens:
// o [sequence = 1, n, H, D] -> [shard = n, H * D]. Live are the rows of the shard axis.
struct ToSequenceAttrs {
  int64_t head_dim = 0;
  bool operator==(const ToSequenceAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("head_dim", head_dim);
  }
};
extern const OpDef kToSequence;
extern const OpDef kToTokens;

// k[0, i] = cache k[slots[i]], v likewise: i32 [L], caches [NB, BS, Hkv, D] -> `dtype` [sequence =
// 1, L, Hkv, D] each. A slot < 0 is no row: its contents are undefined.
struct KvReadAttrs {
  DType dtype = DType::f32;
  bool operator==(const KvReadAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("dtype", name(dtype));
  }
};
extern const OpDef kKvRead;  // (slots, cache k, cache v) -> (k, v)

// The reverse: cache k[slots[i]] = k[0, i].
extern const OpDef kKvWrite;  // (k, v, slots, cache k, cache v) -> ()

// y[i] = x[rows[i]], and zeros for rows[i] < 0: x [n, C], i32 [R] -> [R, C]. If each row is on a
// single rank, the sum over ranks gives all rows.
extern const OpDef kPickRows;

}  // namespace braid::ops
