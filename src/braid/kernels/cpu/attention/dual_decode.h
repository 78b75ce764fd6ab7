#pragma once

#include <algorithm>
#include <span>

#include "braid/kernels/cpu/attention/kernels.h"
#include "braid/ops/dual_chunks.h"

namespace braid::cpu {

// The keys of `all` in dual chunks, in a single state: `kernel` runs once for each chunk of keys,
// with the query at `position` turned for the chunk. `each_chunk(run)` calls run(begin, end, key)
// in order: keys of all.kv in one chunk, at least one, and the position of any key of the chunk.
template <class EachChunk>
void decode_dual(const ops::DualChunks& dual, const double* frequencies, int64_t position,
                 const DecodeChunk& all, void (*kernel)(const DecodeChunk&),
                 const EachChunk& each_chunk) {
  constexpr int kHeads = 4;
  const int64_t D = all.kv.head_dim;
  const std::span turns(frequencies, static_cast<size_t>(dual.rope.rotary_dim / 2));
  alignas(64) float q[kHeads * kMaxHeadDim];
  DecodeChunk c = all;
  c.q = q;
  c.score.scale *= static_cast<float>(dual.growth(position));
  for (int h = 0; h < all.heads; h += kHeads) {
    c.heads = std::min(kHeads, all.heads - h);
    c.state = all.state + h * state_floats(D);
    c.resume = false;
    each_chunk([&](int64_t begin, int64_t end, int64_t key) {
      c.begin = begin;
      c.end = end;
      c.cold = all.cold && h == 0;
      std::copy_n(all.q + h * D, c.heads * D, q);
      ops::turn_heads(dual.rope, turns, dual.moves(position, key), c.heads, D, q);
      kernel(c);
      c.resume = true;
    });
  }
}

}  // namespace braid::cpu
