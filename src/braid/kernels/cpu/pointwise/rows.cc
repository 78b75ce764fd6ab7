#include "braid/kernels/cpu/pointwise/rows.h"

#include <cstring>

#include "braid/base/error.h"
#include "braid/kernels/cpu/dispatch.h"
#include "braid/kernels/cpu/pointwise/tiles.h"
#include "braid/tensor/quant.h"

namespace braid::cpu {

BRAID_DECLARE_PER_ISA(void kv_append_tokens(const KvAppendParams& p, Range tokens))

void embedding(const EmbeddingParams& p, const Team& team) {
  BRAID_CHECK(p.cols % info(p.dtype).block_elems == 0, "cols {}", p.cols);
  for_each_tile(p.tokens, p.cols, team, [&](int64_t t, Range c) {
    const std::byte* row = static_cast<const std::byte*>(p.table) + p.ids[t] * p.row_bytes;
    float* y = p.y + t * p.y_stride + c.begin;
    dequantize_row(p.dtype, row + bytes_of(p.dtype, c.begin), y, c.size());
    if (p.scale != 1.0f) {
      for (int64_t i = 0; i < c.size(); ++i) y[i] *= p.scale;
    }
  });
}

void gather_rows(const GatherRowsParams& p, const Team& team) {
  for_each_tile(p.rows, p.cols, team, [&](int64_t t, Range c) {
    std::memcpy(p.y + t * p.y_stride + c.begin, p.x + (p.index[t] - p.first) * p.x_stride + c.begin,
                c.size() * sizeof(float));
  });
}

void kv_append(const KvAppendParams& p, const Team& team, Isa isa) {
  BRAID_CHECK(is_float(p.cache.dtype), "dtype {}", name(p.cache.dtype));
  pick_isa(isa, BRAID_EACH_ISA(kv_append_tokens))(p, team.share(p.tokens));
}

}  // namespace braid::cpu
