#pragma once

#include "braid/backend/cuda/launch.h"

namespace braid::cuda {

// Turns a step's metadata (device memory) into segment attention's, spans i32 [3 S + 1]:
//   starts[S + 1]  = q_start, the last live row for sequences that are not live
//   offsets[S]     = kv_len - (new tokens): the position of a sequence's first new token
//   lengths[S]     = kv_len, 0 for sequences that are not live
// `sequences` (live, <= S) may be null: all are live. With `decodes`, the first sequences belong to
// another kernel as far as each has a single new token: their number goes to `decodes` (i64), and
// their spans have no rows. A small launch before each attention; capturable.
void query_spans(const int32_t* q_start, const int32_t* kv_len, const int64_t* sequences,
                 int max_sequences, int32_t* spans, int64_t* decodes, LaunchContext context);

}  // namespace braid::cuda
