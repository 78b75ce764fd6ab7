#pragma once

#include <cstdint>

#include "braid/backend/cuda/launch.h"

namespace braid::cuda {

// A sequence's row of the counts for penalties (params.h). Pointers are to device memory; ids
// outside the vocabulary are left out.
struct CountTokens {
  uint32_t* counts = nullptr;  // [V], the sequence's row
  int32_t vocab = 0;
  const int32_t* ids = nullptr;  // [n]
  int64_t n = 0;
  bool generated = false;  // else they are the prompt's
};

// Clears the row for a new sequence, before the prompt is counted.
void clear_counts(uint32_t* counts, int32_t vocab, LaunchContext context);

void count_tokens(const CountTokens& call, LaunchContext context);

}  // namespace braid::cuda
