#pragma once

#include "braid/kernels/cpu/attention/kernels.h"
#include "braid/kernels/cpu/simd/vec.h"

namespace braid::cpu::BRAID_ISA {

constexpr float kMaskedScore = -__builtin_inff();
// Below any score, and finite: 2^(score - max) of a masked score is 0 and never NaN.
constexpr float kNoMax = -1e30f;

// Element offsets of the cache rows for keys [begin, begin + n), page by page.
BRAID_INLINE void key_rows(const KvHead& kv, int64_t begin, int64_t n, int64_t* rows) {
  int64_t page = begin / kv.page_size;
  int64_t offset = begin % kv.page_size;
  for (int64_t i = 0; i < n;) {
    int64_t row = (kv.pages[page] * kv.page_size + offset) * kv.row_stride;
    const int64_t left = kv.page_size - offset;
    const int64_t end = left < n - i ? i + left : n;
    for (; i < end; ++i, row += kv.row_stride) rows[i] = row;
    ++page;
    offset = 0;
  }
}

// Asks for a row of n elements to be in the cache soon. One core keeps only about two dozen such
// requests in flight: they pay when spread evenly over computation, not in bursts.
template <class Kv>
BRAID_INLINE void prefetch_row(const Kv* row, int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(Kv);
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(row + i, 0, 3);
}

// s = cap * tanh(s) on [n] scores, n a multiple of kLanes.
BRAID_INLINE void apply_softcap(float cap, float* s, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) store(s + i, splat(cap) * tanh(load(s + i)));
}

}  // namespace braid::cpu::BRAID_ISA
