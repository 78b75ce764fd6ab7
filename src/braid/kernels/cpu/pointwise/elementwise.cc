#include "braid/kernels/cpu/pointwise/elementwise.h"

#include "braid/kernels/cpu/dispatch.h"
#include "braid/kernels/cpu/pointwise/tiles.h"

namespace braid::cpu {

// a, b, y: [n] f32
BRAID_DECLARE_PER_ISA(void add_row(const float* a, const float* b, float* y, int64_t n))
BRAID_DECLARE_PER_ISA(void silu_mul_row(const float* a, const float* b, float* y, int64_t n))
BRAID_DECLARE_PER_ISA(void gelu_tanh_mul_row(const float* a, const float* b, float* y, int64_t n))

namespace {

using RowFn = void (*)(const float* a, const float* b, float* y, int64_t n);

void apply(RowFn f, const BinaryParams& p, const Team& team) {
  for_each_tile(p.rows, p.cols, team, [&](int64_t t, Range c) {
    f(p.a + t * p.a_stride + c.begin, p.b + t * p.b_stride + c.begin,
      p.y + t * p.y_stride + c.begin, c.size());
  });
}

}  // namespace

void add(const BinaryParams& p, const Team& team, Isa isa) {
  apply(pick_isa<RowFn>(isa, BRAID_EACH_ISA(add_row)), p, team);
}

void silu_mul(const BinaryParams& p, const Team& team, Isa isa) {
  apply(pick_isa<RowFn>(isa, BRAID_EACH_ISA(silu_mul_row)), p, team);
}

void gelu_tanh_mul(const BinaryParams& p, const Team& team, Isa isa) {
  apply(pick_isa<RowFn>(isa, BRAID_EACH_ISA(gelu_tanh_mul_row)), p, team);
}

}  // namespace braid::cpu
