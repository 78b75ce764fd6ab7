#include "braid/kernels/cpu/pointwise/combine.h"

#include <algorithm>
#include <cmath>

#include "braid/kernels/cpu/dispatch.h"
#include "braid/kernels/cpu/pointwise/tiles.h"

namespace braid::cpu {

// y [n] = factor * x [n], or y + factor * x
BRAID_DECLARE_PER_ISA(void scaled_row(const float* x, float factor, float* y, int64_t n))
BRAID_DECLARE_PER_ISA(void add_scaled_row(const float* x, float factor, float* y, int64_t n))

namespace {

using RowFn = void (*)(const float* x, float factor, float* y, int64_t n);

}  // namespace

void add_scaled(const float* x, float factor, float* y, int64_t n, bool first, Isa isa) {
  (first ? pick_isa<RowFn>(isa, BRAID_EACH_ISA(scaled_row))
         : pick_isa<RowFn>(isa, BRAID_EACH_ISA(add_scaled_row)))(x, factor, y, n);
}

void combine(const CombineParams& p, const Team& team, Isa isa) {
  const auto first = pick_isa<RowFn>(isa, BRAID_EACH_ISA(scaled_row));
  const auto next = pick_isa<RowFn>(isa, BRAID_EACH_ISA(add_scaled_row));
  for_each_tile(p.rows, p.cols, team, [&](int64_t t, Range c) {
    float* y = p.y + t * p.y_stride + c.begin;
    bool written = false;
    for (int64_t j = 0; j < p.k; ++j) {
      const int32_t place = p.place[t * p.k + j];
      if (place < 0) continue;
      const float* x = p.x + place * p.x_stride + c.begin;
      (written ? next : first)(x, p.weight[t * p.k + j], y, c.size());
      written = true;
    }
    if (!written) std::fill_n(y, c.size(), 0.0f);
    if (p.shared == nullptr) return;
    const float factor = p.gate ? 1 / (1 + std::exp(-p.gate[t])) : 1;
    next(p.shared + t * p.shared_stride + c.begin, factor, y, c.size());
  });
}

}  // namespace braid::cpu
