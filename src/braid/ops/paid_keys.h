#pragma once

#include "braid/ops/segment_attention.h"

// Attention that queries pay to keys; it orders the next layer's keys (Importance::previous).
namespace braid::ops {

// For each row of each pair's k and each KV head: the attention that the query segments pay the
// row, summed over queries and the head's group. Segments are as in SegmentAttentionAttrs; states,
// results and values take no part.
struct PaidKeysAttrs {
  SegmentAttentionAttrs segments;
  bool operator==(const PaidKeysAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    segments.fields(f);
  }
};
//   (q [1, n, Hq, D], each pair's k [1, m, Hkv, D] ...) -> for each pair f32 [1, m, Hkv, 1]
extern const OpDef kPaidKeys;

// A part of the prompt with keys that get scores.
struct ScoredPart {
  int64_t row = 0;  // first row in the scores, and in the part's order
  int64_t rows = 0;
  int64_t paid_row = 0;  // first row of paid 0: by the part's own queries
  int64_t queries = 0;   // own scoring ones; the first sees `sees` keys, each further one more
  int64_t sees = 0;
  // Rows of a further paid value, for the part's first keys in order.
  struct Sum {
    int paid = 0;
    int64_t row = 0;
    int64_t rows = 0;
    bool operator==(const Sum&) const = default;
  };
  std::vector<Sum> sums;
  // Scoring queries of a later part, which see the first `keys` keys in order.
  struct Readers {
    int64_t keys = 0;
    int64_t queries = 0;
    bool operator==(const Readers&) const = default;
  };
  std::vector<Readers> readers;
  bool operator==(const ScoredPart&) const = default;
};
struct KeyScoresAttrs {
  int64_t rows = 1;
  std::vector<ScoredPart> parts;
  bool operator==(const KeyScoresAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("parts", parts.size());
    f("rows", rows);
  }
};
// The mean weight of a key, over the scoring queries with the key in view.
//   (order i32 [1, n, Hkv, 1] as of thin_keys, paid f32 [1, m, Hkv, 1] ...) -> f32 [1, rows, Hkv,
//   1]
extern const OpDef kKeyScores;

}  // namespace braid::ops
