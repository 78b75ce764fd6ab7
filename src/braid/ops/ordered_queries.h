#pragma once

#include <vector>

#include "braid/program/builder.h"

// Queries of a prompt's parts in the order of their keys (thin_keys.h). Attention takes the first
// queries for far keys, and drops the others for these keys.
namespace braid::ops {

struct OrderedPart {
  int64_t row = 0;  // first row in q, states and order
  int64_t rows = 0;
  bool operator==(const OrderedPart&) const = default;
};
struct OrderedQueriesAttrs {
  int64_t group = 1;
  std::vector<OrderedPart> parts;
  bool operator==(const OrderedQueriesAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("parts", parts.size());
  }
};

// Row `row + i` of a head is q's row `row + order[row + i]`, by the head's KV head.
//   (q [1, n, Hq, D], order i32 [1, m, Hkv, 1]) -> as q
extern const OpDef kOrderQueries;
// States of ordered queries (segment_attention.h) at the queries' own rows.
//   (o f32 [1, n, Hq, D], l and m f32 [1, n, Hq], order) -> (o, l, m)
extern const OpDef kRestoreStates;

}  // namespace braid::ops
