#pragma once

#include "braid/kernels/cuda/decode/device/merge_args.h"
#include "braid/kernels/cuda/decode/device/plain.cuh"

// Merges of states (ops/attention_state.h) in memory, a warp for each query and head.
namespace braid::cuda {

// The states of a query and head in some parts: O' of part p begins at o + p * o_step, and l and m
// are at p * step.
struct StateParts {
  const float* o;
  const float* l;
  const float* m;
  int64_t o_step;
  int64_t step;
  int count;
};

constexpr int kStateColumns = 4;  // of a lane, kPlainLanes apart

// Some columns of the merged state; all columns have the same l and m.
struct MergedState {
  float o[kStateColumns] = {};
  float l = 0;
  float m = -INFINITY;
};

// Columns of the merged state from `first` on, by parts in order. Loads of kTogether parts are
// under way together.
__device__ inline MergedState merge(const StateParts& parts, int D, int first) {
  constexpr int kTogether = 8;
  MergedState sum;
  for (int begin = 0; begin < parts.count; begin += kTogether) {
    float m[kTogether], l[kTogether], o[kTogether][kStateColumns];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int64_t p = begin + i;
      const bool live = p < parts.count;
      m[i] = live ? __ldcg(parts.m + p * parts.step) : -INFINITY;
      l[i] = live ? __ldcg(parts.l + p * parts.step) : 0.f;
#pragma unroll
      for (int c = 0; c < kStateColumns; ++c) {
        const int d = first + c * kPlainLanes;
        o[i][c] = live && d < D ? __ldcg(parts.o + p * parts.o_step + d) : 0.f;
      }
    }
    const float before = sum.m;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) sum.m = fmaxf(sum.m, m[i]);
    const auto weight = [&](float of) { return of == -INFINITY ? 0.f : expf(of - sum.m); };
    sum.l *= weight(before);
#pragma unroll
    for (int c = 0; c < kStateColumns; ++c) sum.o[c] *= weight(before);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (m[i] == -INFINITY) continue;  // its l and O' may be anything
      sum.l += weight(m[i]) * l[i];
#pragma unroll
      for (int c = 0; c < kStateColumns; ++c) sum.o[c] += weight(m[i]) * o[i][c];
    }
  }
  return sum;
}

// Writes the merged state of a query and head, or its result.
template <class Out>
__device__ void write_merged(const StateParts& parts, int D, bool finish, Out* to) {
  const int lane = static_cast<int>(threadIdx.x) % kPlainLanes;
  for (int first = lane; first < D; first += kStateColumns * kPlainLanes) {
    const MergedState sum = merge(parts, D, first);
#pragma unroll
    for (int c = 0; c < kStateColumns; ++c) {
      const int d = first + c * kPlainLanes;
      const float result = sum.l > 0 ? sum.o[c] / sum.l : 0.f;
      if (d < D) to[d] = Out(finish ? result : sum.o[c]);
    }
    if (finish || first > 0) continue;
    to[D] = Out(sum.l);
    to[D + 1] = Out(sum.m);
  }
}

// Writes result `row` of query and head, by a warp.
template <class Out>
__device__ void merge_row(const MergeArgs& a, int64_t row, Out* out) {
  const int64_t merged = static_cast<int64_t>(a.merged) * a.heads;
  const float* o = (row < merged ? a.states : a.own) + row * (a.D + 2);
  const int64_t step = merged * (a.D + 2);
  write_merged({.o = o,
                .l = o + a.D,
                .m = o + a.D + 1,
                .o_step = step,
                .step = step,
                .count = row < merged ? a.parts : 1},
               a.D, a.finish, out + row * (a.finish ? a.D : a.D + 2));
}

// Rows of queries and heads that have results.
__device__ inline int64_t merge_rows(const MergeArgs& a) {
  const int64_t live = a.queries ? min(static_cast<int64_t>(a.rows), *a.queries) : a.rows;
  return live * a.heads;
}

}  // namespace braid::cuda
