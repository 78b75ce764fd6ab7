#include "braid/kernels/cuda/relay/device/cache_map.h"

namespace braid::cuda {

CUtensorMap swizzled_cache_map(const void* cache, int64_t slots, int64_t kv_heads, int head_dim,
                               int box) {
  constexpr int kElems = 64;  // elements per swizzled row
  const int parts = head_dim / kElems;
  const int64_t bytes = 2 * kElems;
  const MapDim dims[] = {{kElems, bytes, kElems},
                         {kv_heads * parts, bytes, parts},
                         {slots, kv_heads * parts * bytes, box}};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B, kMapNarrow,
                         cache, dims, "a cache");
}

}  // namespace braid::cuda
