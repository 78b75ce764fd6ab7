#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "braid/kernels/cuda/cluster/exchange.h"

namespace braid::cuda {

// Tags of a launch: more than exchanges and rows of words together.
constexpr uint32_t kFusedTags = 16;

// A launch, passed to the kernel by value. Pointers are device memory, aligned to 16 bytes.
struct FusedArgs {
  CUtensorMap k_map;  // for the cache: boxes of relay_box keys of a head
  CUtensorMap v_map;
  const int64_t* rows;        // [1]: live tokens, 0 or 1
  const float* a;             // [C]
  const __nv_bfloat16* b;     // [C] or null
  const float* norm_w;        // [C]
  float* sum;                 // [C] receives a + b, or null
  const __nv_bfloat16* w[4];  // q [Hq * D, C], k and v [Hkv * D, C], o [M, Hq * D] or null
  const float* bias[4];       // [N] or null
  const int32_t* position;    // [1]
  const int32_t* slot;        // [1]: place of k and v; outside the cache: nowhere
  const int32_t* kv_len;      // [1]: keys, including the new key
  const int32_t* page_table;  // [pages]
  const uint64_t* turns;      // [pairs]
  const float* q_norm;        // [D] or null
  const float* k_norm;        // [D] or null
  __nv_bfloat16* cache_k;     // [slots, Hkv, D]
  __nv_bfloat16* cache_v;     // [slots, Hkv, D]
  __nv_bfloat16* out;         // [Hq * D], or [M] with the projection
  uint2* words;       // [Hq * D / 2]: {two bf16, tag}, attention's result for the projection
  uint4* mail;        // [Hkv, mail_bytes] for exchanges through memory, or null
  uint32_t* control;  // [2]: tag before this launch's first, finished CTAs
  int64_t mail_bytes;
  int32_t width;    // C
  int32_t outputs;  // M; 0: no projection
  int32_t kv_heads;
  int32_t group;
  int32_t cluster;
  int32_t slots;
  int32_t inbox_bytes;
  int32_t num_sums;
  int32_t x_elems;
  int32_t in_flight;        // copies of a producer under way
  int32_t in_flight_words;  // the same while the projection's words travel
  int32_t pairs;
  int32_t page_size;
  int32_t num_slots;
  int32_t window;  // 0: none
  float factor;    // for cos and sin
  float scale;
  float eps;
  float qk_eps;
  bool interleaved;
};

}  // namespace braid::cuda
