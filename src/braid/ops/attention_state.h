#pragma once

#include "braid/ops/attention.h"

// Attention over keys that are divided over ranks: each rank attends to the keys in its cache, and
// all ranks' states merge at the query's owner.
namespace braid::ops {

// The state of a query over some keys: with s = scale * q.k, and softcap as attention has it,
//   m = max s,  l = sum e^(s - m),  O' = sum e^(s - m) v
// packed as [D + 2] f32: O', then l, then m. Without keys O' and l are 0 and m is -inf.
struct AttentionStateAttrs {
  AttentionAttrs attention;  // its window is in `begin`
  int64_t window_row = 0;    // row of `begin`
  // Dual chunks of a sequence. Rows behind window_row have the later chunks' first keys, and a row
  // behind these the queries' positions.
  int64_t chunks = 1;
  bool operator==(const AttentionStateAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    attention.fields(f);
    f("window_row", window_row);
    if (chunks > 1) f("chunks", chunks);
  }
};

// Row t of q is of sequence rows[t], whose keys lie in slots[rows[t], i] of the cache; the query
// sees those with begin[window_row, t] <= i < end[t].
//   (q f32 or bf16 [1, T, Hq, D], cache k, cache v: f32, f16 or bf16 [NB, BS, Hkv, D],
//    slots i32 [S, K], rows i32 [T], begin i32 [W, T], end i32 [T])
//     -> f32 [1, T, Hq, D + 2]
extern const OpDef kAttentionState;

// The results of n queries from the states of `parts` ranks, merged in order of the parts:
//   (states f32 [1, parts * n, Hq, D + 2], part p's from row p * n on,
//    own f32 [1, parts * n + m, Hq, D + 2] or absent: the last m are read)
//   -> f32 or bf16, as `dtype` says, [shard = n, or n + m with `own`, Hq * D]
// Rows from n on are the results of own's states alone. Live are the rows of the shard axis. With
// `sequence`, without `own`, the result is [1, n, Hq, D] and all rows are live. A query without
// keys in any part has zeros.
struct MergeStatesAttrs {
  int parts = 1;
  DType dtype = DType::f32;
  bool sequence = false;
  bool operator==(const MergeStatesAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("parts", parts);
    f("dtype", name(dtype));
    if (sequence) f("sequence", true);
  }
};
extern const OpDef kMergeStates;

// States as segment attention leaves them, merged over `parts` in order and packed:
//   (state_o f32 [1, parts * n, Hq, D], state_l and state_m f32 [1, parts * n, Hq])
//     -> f32 [1, n, Hq, D + 2]
// Where m is -inf, O' and l of a part are not read.
struct PackStatesAttrs {
  int parts = 1;
  bool operator==(const PackStatesAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("parts", parts);
  }
};
extern const OpDef kPackStates;

}  // namespace braid::ops
