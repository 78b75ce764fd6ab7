#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/tensor/dtype.h"

// The plain form of latent attention, besides its product and segment attention. Device
// memory, the caller's; capturable.
namespace braid::cuda {

// out[j] = the latent and the rotated columns for a sequence's key j, j < kv_len.
struct LatentRowsParams {
  const void* cache = nullptr;          // [NB, BS, 1, width] of cache_dtype
  const int32_t* page_table = nullptr;  // [P]
  const int32_t* kv_len = nullptr;      // [1]
  const int64_t* sequences = nullptr;   // 0: there are no keys
  void* out = nullptr;                  // bf16 [keys, width]
  int32_t* begin = nullptr;             // [2], becomes 0 and kv_len
  DType cache_dtype = DType::bf16;
  int page_size = 0;
  int width = 0;  // R + Dr, a multiple of 8
  int keys = 0;   // capacity
};
void latent_rows(const LatentRowsParams& params, LaunchContext context);

// out[t, h] = q_n | rope(q_r)
struct TurnQueriesParams {
  const void* q = nullptr;             // bf16 [T, H (Dn + Dr)], rows q_stride apart
  const int32_t* positions = nullptr;  // [T]
  const uint64_t* turns = nullptr;     // [Dr / 2], rope_turns
  void* out = nullptr;                 // bf16 [T, H, Dn + Dr]
  const int64_t* rows = nullptr;       // live tokens
  int64_t q_stride = 0;
  int tokens = 0, heads = 0;
  int nope = 0, rope = 0;  // multiples of 8
  float factor = 1;
  bool interleaved = true;
};
void turn_queries(const TurnQueriesParams& params, LaunchContext context);

// The weight whose product with rows c | k_r is a head's key and value, bf16 [H, Dn + Dr + Dv,
// R + Dr]: k_h and zeros, then a unit matrix for k_r, then v_h and zeros. Once when a plan is
// bound.
struct PlainWeightParams {
  const void* k_b = nullptr;  // bf16 [H, Dn, R], or [H, R, Dn] where `transposed`
  const void* v_b = nullptr;  // bf16 [H, Dv, R]
  void* out = nullptr;
  bool transposed = false;
  int heads = 0, nope = 0, rope = 0, value = 0, latent = 0;
};
void plain_weight(const PlainWeightParams& params, cudaStream_t stream);

}  // namespace braid::cuda
