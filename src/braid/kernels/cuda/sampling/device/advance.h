#pragma once

#include <cstdint>

#include "braid/backend/cuda/launch.h"

namespace braid::cuda {

// Makes the inputs of the next decode step from this step's tokens: each live row is a sequence
// with one token. All pointers are to device memory; S is the capacity.
struct AdvanceParams {
  const int32_t* sampled = nullptr;     // [S]
  int32_t* token_ids = nullptr;         // [S]; may be `sampled`
  int32_t* positions = nullptr;         // [S]: += 1
  int32_t* kv_len = nullptr;            // [S]: += 1
  int32_t* slots = nullptr;             // [S]: the new position's place in the KV cache
  const int32_t* page_table = nullptr;  // [S, page_table_stride]; < 0: no page reserved
  int32_t page_table_stride = 0;
  int32_t page_size = 0;        // BS
  uint32_t* overrun = nullptr;  // [S]: set to 1 without a page; the slot is then -1
  uint64_t* step = nullptr;     // += 1; optional
  const int64_t* rows = nullptr;
  int32_t capacity = 0;
};

// slots[s] = page_table[s, pos / BS] BS + pos % BS for the new pos. One small kernel; capturable.
void advance(const AdvanceParams& params, LaunchContext context);

}  // namespace braid::cuda
