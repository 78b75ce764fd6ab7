#pragma once

#include "braid/base/error.h"
#include "braid/kernels/cuda/dual_chunks/device/turn_query.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/tensor/dtype.h"

namespace braid::cuda {

constexpr int kMeetThreads = 128;

// By a CTA of kMeetThreads: the heads [heads, head_dim] of the query at `position` as they meet a
// chunk of keys.
template <class T>
__device__ void meet_row(const DualTurns& dual, int heads, int head_dim, const T* q, T* met,
                         int position, int chunk) {
  const int pairs = head_dim / 2, at_once = kMeetThreads / pairs;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= at_once * pairs) return;
  const int pair = thread % pairs;
  const int64_t by = moves(dual, position, chunk);
  const float gain = growth(dual, position);
  const bool turns = pair < dual.pairs;
  const int2 at = turns ? columns_of(dual, pair) : make_int2(2 * pair, 2 * pair + 1);
  float2 turn = {1.f, 0.f};
  if (turns && by != 0) turn = turn_of(dual, by, pair);
  for (int h = thread / pairs; h < heads; h += at_once) {
    const T* from = q + h * head_dim;
    T* to = met + h * head_dim;
    const float x = widen(from[at.x]), y = widen(from[at.y]);
    to[at.x] = narrow<T>(gain * (x * turn.x - y * turn.y));
    to[at.y] = narrow<T>(gain * (x * turn.y + y * turn.x));
  }
}

// Calls `use` with a value of the queries' type. Fails with kUnsupported for calls outside
// meet_row().
template <class Use>
void with_query_type(DType dtype, int64_t head_dim, Use&& use) {
  if (head_dim % 2 != 0 || head_dim > 2 * kMeetThreads) {
    fail(ErrorCode::kUnsupported, "dual chunks: head dim {} (even, at most {})", head_dim,
         2 * kMeetThreads);
  }
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) {
    fail(ErrorCode::kUnsupported, "dual chunks of queries in {} (f32, bf16, f16)", name(dtype));
  }
  with_type(dtype, use);
}

}  // namespace braid::cuda
