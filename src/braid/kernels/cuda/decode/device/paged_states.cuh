#pragma once

#include "braid/kernels/cuda/decode/device/decode.cuh"
#include "braid/kernels/cuda/decode/device/paged_states.h"

namespace braid::cuda {

// The place of a key of the query's sequence in the cache.
__device__ __forceinline__ int32_t slot_of(const PagedStateArgs& a, int query, int32_t key) {
  const int page = __umulhi(key, a.page_inverse);
  return a.page_table[int64_t{a.rows[query]} * a.table_stride + page] * a.page_size + key -
         page * a.page_size;
}

}  // namespace braid::cuda
