#pragma once

#include <vector>

#include "braid/ops/segment_attention.h"

namespace braid::cuda {

// Rows of a query segment as they meet a chunk of keys: turned back, and grown.
struct MetRows {
  int q = 0;  // the q value, its rows and heads
  int64_t row = 0;
  int64_t head = 0;
  int64_t rows = 0;
  int64_t position = 0;
  int64_t met_row = 0;
};

// A call of plain segment attention over the keys of a single chunk.
struct ChunkCall {
  ops::SegmentAttentionAttrs attrs;
  int64_t chunk = 0;
  // Rows of the q value [B, met_rows, heads, D] behind those of the whole call; none: no such
  // value.
  std::vector<MetRows> met;
  int64_t met_rows = 0;
};

// Calls that compute, one after the other, what the call with dual chunks computes. Running states
// go from call to call, so each query segment has state rows of its own
// (parallel/attention/cut_phases.h makes such).
std::vector<ChunkCall> chunk_calls(const ops::SegmentAttentionAttrs& attrs);

}  // namespace braid::cuda
