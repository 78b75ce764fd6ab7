#pragma once

#include <cstdint>

#include "braid/kernels/cuda/decode/plan.h"

namespace braid::cuda {

// A launch, passed to the kernel by value; see DecodeParams.
struct DecodeArgs {
  const void* q;
  const void* k;
  const void* v;
  const int32_t* q_start;
  const int32_t* kv_len;
  const int32_t* page_table;
  const int64_t* sequences;
  void* out;
  void* workspace;
  int64_t q_stride;
  int64_t out_stride;
  uint32_t token_bytes;  // of K, all KV heads
  DecodeShape shape;
  int32_t warps_log2;  // of a CTA
  int32_t max_sequences;
  int32_t num_q_heads;
  int32_t first_kv_head;
  int32_t head_offset;
  int32_t page_size;
  uint32_t page_inverse;  // key * page_inverse >> 32 is key / page_size
  int32_t table_stride;
  float scale;
  float softcap;
  float softcap_inverse;
  bool q_f32;
  bool out_f32;
  bool history_ready;
};

// A launch that leaves states (StateParams): each query is a sequence with a single token, kv_len
// is the end of the query's keys, and page_table has a slot per key.
struct StateArgs : DecodeArgs {
  const int32_t* rows;   // [T] of page_table
  const int32_t* begin;  // [T] the first key that the query sees
};

}  // namespace braid::cuda
