#pragma once

#include <vector>

#include "braid/ops/fusion.h"
#include "braid/ops/rope_table.h"

namespace braid::ops {

// rms_norm by head and rope_table behind it, of queries and keys together:
//   q' = rope_table(rms_norm(q, w_q), table), k' likewise
// Inputs: q [B * L, H * D], w_q [D], k [B * L, Hkv * D], w_k [D], table f32 [R, rotary].
// Outputs: q', k' of `dtype`. The norm's result is not rounded before it turns.
struct NormRopeTableAttrs {
  RopeTableAttrs rope;
  float eps = 1e-6f;
  DType dtype = DType::f32;
  bool operator==(const NormRopeTableAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    rope.fields(f);
    f("eps", eps);
    if (dtype != DType::f32) f("dtype", name(dtype));
  }
};

extern const OpDef kNormRopeTable;

// For backends with the op: bf16 or f16 heads with 64, 128 or 256 columns that turn whole, without
// a batch axis.
const std::vector<Fusion>& norm_rope_table_fusions();

}  // namespace braid::ops
