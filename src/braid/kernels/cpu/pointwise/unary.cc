#include "braid/kernels/cpu/pointwise/unary.h"

#include "braid/kernels/cpu/dispatch.h"

namespace braid::cpu {

// x, y: [n] f32
BRAID_DECLARE_PER_ISA(void silu_row(const float* x, float* y, int64_t n))
BRAID_DECLARE_PER_ISA(void gelu_tanh_row(const float* x, float* y, int64_t n))
BRAID_DECLARE_PER_ISA(void quick_gelu_row(const float* x, float* y, int64_t n))

namespace {

using RowFn = void (*)(const float* x, float* y, int64_t n);

void apply(RowFn f, const UnaryParams& p, const Team& team) {
  constexpr int64_t kChunk = 16;  // no two threads write the same cache line
  const Range chunks = team.share(ceil_div(p.n, kChunk));
  const int64_t begin = chunks.begin * kChunk, end = std::min(p.n, chunks.end * kChunk);
  if (begin < end) f(p.x + begin, p.y + begin, end - begin);
}

}  // namespace

void silu(const UnaryParams& p, const Team& team, Isa isa) {
  apply(pick_isa<RowFn>(isa, BRAID_EACH_ISA(silu_row)), p, team);
}

void gelu_tanh(const UnaryParams& p, const Team& team, Isa isa) {
  apply(pick_isa<RowFn>(isa, BRAID_EACH_ISA(gelu_tanh_row)), p, team);
}

void quick_gelu(const UnaryParams& p, const Team& team, Isa isa) {
  apply(pick_isa<RowFn>(isa, BRAID_EACH_ISA(quick_gelu_row)), p, team);
}

}  // namespace braid::cpu
