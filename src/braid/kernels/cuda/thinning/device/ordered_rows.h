#pragma once

#include <span>

#include "braid/backend/cuda/launch.h"
#include "braid/ops/ordered_queries.h"

namespace braid::cuda {

// Rows of query heads that change places by their KV head's order (ops/ordered_queries.h): row
// `row + i` of `ordered` and row `row + order[row + i]` of `own` are the same.
struct OrderedRowsParams {
  std::byte* ordered = nullptr;    // [n, heads, row_bytes]
  std::byte* own = nullptr;        // likewise
  const int32_t* order = nullptr;  // [n, heads / group]
  int heads = 1, group = 1;
  int64_t row_bytes = 4;
  bool restore = false;  // writes `own`; else `ordered`
  std::span<const ops::OrderedPart> parts;
};

void load_ordered_rows();
// Fails with kUnsupported on rows of an odd number of bytes.
void ordered_rows(const OrderedRowsParams& params, LaunchContext context);

}  // namespace braid::cuda
