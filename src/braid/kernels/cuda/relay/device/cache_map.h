#pragma once

#include "braid/backend/cuda/tensor_map.h"

namespace braid::cuda {

// The map for a cache [slots, kv_heads, head_dim] with 2-byte elements, for KeyUnits: a copy brings
// `box` keys of a head in rows of 64 elements, swizzled.
CUtensorMap swizzled_cache_map(const void* cache, int64_t slots, int64_t kv_heads, int head_dim,
                               int box);

}  // namespace braid::cuda
