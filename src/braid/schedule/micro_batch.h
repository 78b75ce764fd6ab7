#pragma once

#include <span>

#include "braid/base/inline_vector.h"
#include "braid/program/op.h"

namespace braid {

// A range of a step's batch, computed as one. Micro-batches follow each other on every batch axis;
// micro-batches in a merged value or launch are adjacent.
struct MicroBatch {
  Extents capacity;
  // The first sequence begins in the micro-batch before: attention reads keys written
  // there.
  bool continues = false;
  bool operator==(const MicroBatch&) const = default;
};

// The capacity with an even part of the tokens on `ranks` ranks.
constexpr Extents sharded(Extents capacity, int ranks) {
  capacity.shard = ceil_div(capacity.token, static_cast<int64_t>(ranks));
  return capacity;
}

// A sequence's share of a step.
struct SequenceInfo {
  int64_t tokens = 0;  // computed by this step
  int64_t cached = 0;  // in the KV cache before it
  int64_t scored = 0;  // the last ones, whose logits are wanted
};

// (query, key) pairs of causal attention by `tokens` queries after `cached` keys.
constexpr int64_t attended_keys(int64_t cached, int64_t tokens) {
  return (tokens * cached) + (tokens * (tokens + 1) / 2);
}

// A strategy's view of a batch before division.
struct BatchInfo {
  std::span<const SequenceInfo> sequences;  // in token order
  int64_t tokens = 0;
  int ranks = 1;
};

constexpr int kMaxMicroBatches = 8;
// A batch, divided by a strategy: ranges of tokens.
using Ranges = InlineVector<Range, kMaxMicroBatches>;

// `tokens` in n parts, as even as `multiple` allows: cuts fall on multiples. Fewer parts if a part
// would have fewer than `least` tokens. Fails with kInvalidArgument for n outside 1 to
// kMaxMicroBatches.
Ranges split_tokens(int64_t tokens, int n, int64_t least = 1, int64_t multiple = 1);

}  // namespace braid
