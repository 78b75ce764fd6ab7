#pragma once

#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"
#include "braid/kernels/cpu/kv_cache.h"
#include "braid/tensor/dtype.h"

namespace braid::cpu {

// y[t] = scale * dequantized table[ids[t]].
struct EmbeddingParams {
  const int32_t* ids = nullptr;  // [T], each in [0, V): the caller checks
  const void* table = nullptr;   // [V, C] of dtype, rows row_bytes apart
  DType dtype = DType::f32;      // any float or block format
  int64_t row_bytes = 0;
  float* y = nullptr;  // [T, C], rows y_stride elements apart
  int64_t tokens = 0;  // T
  int64_t cols = 0;    // C, a multiple of the dtype's block
  int64_t y_stride = 0;
  float scale = 1.0f;
};
void embedding(const EmbeddingParams& p, const Team& team);

// y[i] = x[index[i] - first]; bitwise.
struct GatherRowsParams {
  const float* x = nullptr;        // [N, C], rows x_stride apart
  const int32_t* index = nullptr;  // [T], each in [first, first + N): the caller checks
  float* y = nullptr;              // [T, C], rows y_stride apart; not x
  int64_t rows = 0;                // T
  int64_t cols = 0;                // C
  int64_t first = 0;               // number in `index` for x's first row
  int64_t x_stride = 0;
  int64_t y_stride = 0;
};
void gather_rows(const GatherRowsParams& p, const Team& team);

// cache[slot[t]] = (k[t], v[t]) rounded to the cache's dtype; slot < 0 skips the token.
struct KvAppendParams {
  const float* k = nullptr;        // [T, Hkv * D], rows k_stride apart
  const float* v = nullptr;        // [T, Hkv * D], rows v_stride apart
  const int32_t* slots = nullptr;  // [T]
  KvCache cache;
  int64_t tokens = 0;  // T
  int64_t k_stride = 0;
  int64_t v_stride = 0;
};
void kv_append(const KvAppendParams& p, const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
