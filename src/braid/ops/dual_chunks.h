#pragma once

#include <algorithm>
#include <span>

#include "braid/ops/rope.h"

namespace braid::ops {

// Dual chunk attention (arXiv 2402.17463): attention to farther keys than a model was trained for.
// A query at position p sees a key of chunk n, [n * chunk, (n + 1) * chunk), as from position
//   min(p, n * chunk + reach),  chunk < reach <= 2 * chunk
// so no distance is beyond `reach`. Published code keeps keys turned for (position mod chunk), and
// turns a query for its own, the next or a far chunk. Here each key is turned for its position, as
// in any cache, and the query turns back: distances are the same, and a cache serves both.
// The logits grow with a query's length, by s^2, s = max(1, 0.1 ln((p + 1) / original) + 1).
struct DualChunks {
  int64_t chunk = 0;
  int64_t reach = 0;
  int64_t original = 0;  // 0: logits do not grow
  RopeAttrs rope;        // of queries and keys, without attention_factor
  bool operator==(const DualChunks&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("key_chunk", chunk);
    f("reach", reach);
    if (original) f("original", original);
  }

  // Longest sequence whose attention is plain.
  int64_t plain() const { return original ? std::min(reach, original) : reach; }
  int64_t chunk_end(int64_t key) const { return (key / chunk + 1) * chunk; }
  // How far the query at `position` moves, at most 0, before the query meets `key`.
  int64_t moves(int64_t position, int64_t key) const;
  double growth(int64_t position) const;  // s^2
};

// Turns `heads` heads, `stride` elements apart, by `by` positions; `frequencies` [rotary_dim / 2]
// are rope_frequencies().
void turn_heads(const RopeAttrs& rope, std::span<const double> frequencies, int64_t by,
                int64_t heads, int64_t stride, float* x);

}  // namespace braid::ops
