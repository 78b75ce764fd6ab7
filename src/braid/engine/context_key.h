#pragma once

#include <string>

#include "braid/parallel/attention/sequence_layout.h"
#include "braid/schedule/micro_batch.h"

namespace braid {

class BatchCut;

// A plan's inputs, and its key in caches: equal on all ranks. Sizes are capacities, rounded up so
// that steps whose sizes change a little share a plan; lengths, positions and pages are data.
struct ContextKey {
  enum class Kind : uint8_t {
    ranks,   // all ranks compute the batch as one
    tokens,  // one sequence's tokens are divided over ranks: sizes are exact, segments are planned
    gather,  // its keys are brought to rank 0
    first,   // rank 0 computes the batch alone
    apart,   // few tokens are divided over ranks, and their queries go to the keys
  };

  int strategy = 0;  // index into the runner's strategies
  InlineVector<MicroBatch, kMaxMicroBatches> micro_batches;
  bool every_row = false;  // logits of all tokens are wanted, as in a decode step: rows are tokens
  Kind kind = Kind::ranks;
  bool exact = false;  // of tokens: no far key is thinned, also where the planner has levels
  // For kinds tokens and gather; apart uses q alone. With kind ranks: a prompt whose far keys each
  // rank thins, as on a single rank; empty: exact.
  SequenceLayout q, kv;
  int64_t sequences = 0;  // of apart
  int64_t own = 0;        // of apart: own rows of each rank (KeysApart)
  int mesh = 0;           // of tokens: index into the runner's meshes

  bool operator==(const ContextKey& other) const;
};

// Capacities for a cut batch on `ranks` ranks: tokens round up to a power of two, above 256 by less
// than an eighth; sequences, whose metadata are small, to 8 times a power of four unless there is
// one alone, as in a long prompt; rows to a power of four; neither to more than the tokens.
ContextKey key_for(const BatchCut& cut, int strategy, int ranks);

// The capacity for `rows` rows of logits.
int64_t row_capacity(int64_t rows);

// Capacities for one sequence's tokens, divided as the layouts say; rows round up as above.
ContextKey key_for_tokens(const SequenceLayout& q, const SequenceLayout& kv, int64_t rows);

// Capacities for one sequence's `tokens` tokens behind `cached` others, all on each of `ranks`
// ranks, which thin far keys.
ContextKey key_for_thinned(int64_t tokens, int64_t cached, int64_t rows, int ranks);

// Capacities for the divided tokens of some sequences with keys that stay in place.
ContextKey key_for_apart(const SequenceLayout& tokens, int64_t sequences, int64_t rows);

// The same with own rows: `guests` and `own` are the most rows of a rank. Each rounds up to a power
// of two or an eighth, so that sequences join and leave without a new plan; `caches` rank caches of
// keys are listed.
ContextKey key_for_local(int ranks, int64_t guests, int64_t own, int64_t caches, int64_t rows);

// "512+512 tokens, 8+8 sequences, 1+1 rows".
std::string to_string(const ContextKey& key);

}  // namespace braid
