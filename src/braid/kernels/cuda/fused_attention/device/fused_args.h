#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "braid/kernels/cuda/cluster/exchange.h"

namespace braid::cuda {

// Tags in a launch: more than exchanges, at most one for each head of each token and one for each
// token, and rows of words together.
constexpr uint32_t kFusedTags = 512;

// A launch, passed to the kernel by value. Pointers are device memory, aligned to 16 bytes. T and S
// are 1 for the kernel of a single token.
struct FusedArgs {
  CUtensorMap k_map;  // for the cache: boxes with relay_box keys of a head
  CUtensorMap v_map;
  CUtensorMap w_map[4];         // for several tokens: kFusedTileRows x kFusedChunk elements of w
  const int64_t* rows;          // [1]: live tokens, 0 to T
  const int64_t* sequences;     // [1]: live sequences, of several tokens
  const float* a;               // [T, C], or null
  const __nv_bfloat16* normed;  // [T, C]: the normed input, in a's place
  const __nv_bfloat16* b;       // [T, C] or null
  const float* norm_w;          // [C]
  float* sum;                   // [T, C] receives a + b, or null
  const __nv_bfloat16* w[4];    // q [Hq * D, C], k and v [Hkv * D, C], o [M, Hq * D] or null
  bool w_f16[4];                // the weight is f16, of several tokens
  const float* bias[4];         // [N] or null
  const int32_t* position;      // [T]
  const int32_t* slot;          // [T]: place of k and v; outside the cache: nowhere
  const int32_t* q_start;       // [S + 1], of several tokens
  const int32_t* kv_len;        // [S]: keys, including the new keys
  const int32_t* page_table;    // [S, table_stride]
  const uint64_t* turns;        // [pairs]
  const float* q_norm;          // [D] or null
  const float* k_norm;          // [D] or null
  __nv_bfloat16* cache_k;       // [slots, Hkv, D]; of several tokens perhaps f16
  __nv_bfloat16* cache_v;       // [slots, Hkv, D]
  __nv_bfloat16* out;           // [T, Hq * D], or [T, M] with the projection
  uint2* words;       // [T, Hq * D / 2]: {two bf16, tag}, attention's result for the projection
  uint2* row_words;   // [Hkv, T, (G + 2) * D]: {bf16, tag}, q k v for a head's parts, or null
  uint2* part_words;  // [Hkv, parts, T, G, D + 4]: {f32, tag}, O', m and l of a part, or null
  uint4* mail;        // [Hkv * parts, mail_bytes] for exchanges through memory, or null
  uint32_t* control;  // [2]: tag before this launch's first, finished CTAs
  int64_t mail_bytes;
  int32_t width;    // C
  int32_t outputs;  // M; 0: no projection
  int32_t kv_heads;
  int32_t group;
  int32_t cluster;
  int32_t parts;   // clusters of a KV head
  int32_t tokens;  // T
  int32_t each;    // tokens of an exchange
  int32_t heads;   // query heads of an exchange of results
  int32_t table_stride;
  int32_t slots;
  int32_t inbox_bytes;
  int32_t num_sums;
  int32_t num_scores;       // f32 of FusedLayout::scores; 0: keys are divided
  ExchangeForm score_form;  // of their sum
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
