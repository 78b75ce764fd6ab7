#pragma once

#include "braid/kernels/cuda/dual_chunks/device/turns.h"

// A query as it meets a chunk of keys (ops/dual_chunks.h).
namespace braid::cuda {

// How far the query at `position` moves, at most 0, before the query meets the keys of a chunk.
__device__ inline int64_t moves(const DualTurns& d, int position, int chunk) {
  const int64_t by = int64_t{chunk} * d.chunk + d.reach - position;
  return by < 0 ? by : 0;
}

// Growth of the logits, s^2.
__device__ inline float growth(const DualTurns& d, int position) {
  if (d.original == 0 || position < d.original) return 1.f;
  const float s =
      0.1f * logf(static_cast<float>(position + 1) / static_cast<float>(d.original)) + 1;
  return s * s;
}

// The turn of a pair by `by` positions: cos in x, sin in y.
__device__ inline float2 turn_of(const DualTurns& d, int64_t by, int pair) {
  // The product modulo 2^64 is the angle modulo a full turn; its top 32 bits as half turns.
  const uint64_t angle = static_cast<uint64_t>(by) * __ldg(&d.turns[pair]);
  float2 turn;
  sincospif(__int2float_rn(static_cast<int>(angle >> 32)) * 0x1p-31f, &turn.y, &turn.x);
  return turn;
}

// The columns of a pair.
__device__ inline int2 columns_of(const DualTurns& d, int pair) {
  return d.interleaved ? make_int2(2 * pair, 2 * pair + 1) : make_int2(pair, pair + d.pairs);
}

}  // namespace braid::cuda
