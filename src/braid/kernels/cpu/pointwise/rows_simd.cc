#include "braid/kernels/cpu/pointwise/convert_simd.h"
#include "braid/kernels/cpu/pointwise/rows.h"

namespace braid::cpu::BRAID_ISA {

void kv_append_tokens(const KvAppendParams& p, Range tokens) {
  const int64_t width = p.cache.kv_heads * p.cache.head_dim;
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    if (p.slots[t] < 0) continue;
    convert_row(p.k + t * p.k_stride, p.cache.k, p.cache.dtype, p.slots[t] * width, width);
    convert_row(p.v + t * p.v_stride, p.cache.v, p.cache.dtype, p.slots[t] * width, width);
  }
}

}  // namespace braid::cpu::BRAID_ISA
