#pragma once

#include <string>

#include "braid/schedule/micro_batch.h"

namespace braid {

class BatchCut;

// What a plan is made for, and found by: equal on all ranks. Sizes are capacities, rounded up so
// that steps whose sizes change a little share a plan; lengths, positions and pages are data.
struct ContextKey {
  int strategy = 0;  // index into the runner's strategies
  InlineVector<MicroBatch, kMaxMicroBatches> micro_batches;

  bool operator==(const ContextKey& other) const;
};

// Capacities for a cut batch on `ranks` ranks: tokens round up to a power of two; sequences, whose
// metadata are small, to 8 times a power of four; rows to a power of four.
ContextKey key_for(const BatchCut& cut, int strategy, int ranks);

// "512+512 tokens, 8+8 sequences, 1+1 rows".
std::string to_string(const ContextKey& key);

}  // namespace braid
