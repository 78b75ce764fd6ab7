#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/dual_chunks/device/turns.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// Queries as they meet the chunks [first_chunk, first_chunk + chunks) of their sequences' keys:
// turned back, and grown. Device memory; shapes are capacities: S sequences, T tokens.
struct MeetParams {
  TensorView q;              // f32, bf16 or f16 [T, Hq * D]
  std::byte* met = nullptr;  // as q [chunks, T, Hq * D]
  int64_t head_dim = 0;
  const int32_t* q_start = nullptr;    // [S + 1], from the whole batch's first token on
  const int32_t* kv_len = nullptr;     // [S]
  const int64_t* sequences = nullptr;  // live
  int max_sequences = 0;               // S
  int first_chunk = 0;
  int chunks = 1;
  DualTurns dual;
  // Optional, [S]: keys of first_chunk that each sequence has; none in sequences that are not live.
  int32_t* lengths = nullptr;
  // Optional, [chunks * T] each: the sequence of a query, and keys [begin, end) of the chunk that
  // the query sees; no keys for tokens that are not live.
  int32_t* rows = nullptr;
  int32_t* begin = nullptr;
  int32_t* end = nullptr;
};

// A launch; capturable. Fails with kUnsupported on other dtypes.
void meet_chunks(const MeetParams& params, LaunchContext context);

}  // namespace braid::cuda
