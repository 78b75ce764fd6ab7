#pragma once

#include <cstdint>

#include "braid/backend/cuda/launch.h"

namespace braid::cuda {

// Begins a step whose inputs the host wrote before it knew the tokens sampled last. All pointers
// but `taken` are to device memory.
struct TakeTokens {
  const int32_t* sampled = nullptr;  // [S]
  int32_t capacity = 0;              // S
  int32_t* token_ids = nullptr;      // [T]: -1 - s becomes sampled[s]
  int64_t tokens = 0;                // T
  uint64_t* step = nullptr;          // += 1
  uint2* taken = nullptr;            // u64, pinned: then the step, once all inputs were read
};

// One small kernel; capturable.
void take_tokens(const TakeTokens& call, LaunchContext context);

}  // namespace braid::cuda
