#pragma once

#include <span>

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/attention/desc.h"
#include "braid/kernels/cuda/dual_chunks/device/turns.h"
#include "braid/tensor/dtype.h"

namespace braid::cuda {

// Rows of a query segment, with the first row's place among the met queries.
struct MetSegment {
  const void* q = nullptr;  // the first row and head, [B, rows, H, D] with D contiguous columns
  Strides stride;
  int32_t rows = 0;
  int32_t position = 0;  // of the first row
  int64_t met_row = 0;
};

// Queries of segments as they meet a chunk of keys: turned back, and grown. Device memory.
struct MeetSegmentsParams {
  DType dtype = DType::bf16;  // of queries: f32, bf16 or f16
  std::span<const MetSegment> segments;
  std::byte* met = nullptr;  // [B, met_rows, H, D]
  int64_t met_rows = 0;
  int64_t sequences = 0;  // B
  int64_t heads = 0;      // H
  int64_t head_dim = 0;   // D
  int64_t chunk = 0;      // its number
  DualTurns dual;
};

// A launch for each kMaxQSegments segments; capturable. Fails with kUnsupported on other dtypes.
void meet_segments(const MeetSegmentsParams& params, LaunchContext context);

// Loads the kernel on the current device: its first launch must not, while another rank waits.
void load_meet_segments(DType dtype, int64_t head_dim);

}  // namespace braid::cuda
