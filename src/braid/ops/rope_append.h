#pragma once

#include "braid/ops/rope.h"

namespace braid::ops {

// Fused rope of q and k, each with an optional norm of its heads before, and kv_append: (q, k, v,
// positions, factors, slots, cache k, cache v, q_norm, k_norm) -> q'.
struct RopeAppendAttrs {
  RopeAttrs rope;
  float eps = 0;  // for the norms, if any
  bool operator==(const RopeAppendAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    rope.fields(f);
    if (eps > 0) f("eps", eps);
  }
};

extern const OpDef kRopeAppend;

}  // namespace braid::ops
