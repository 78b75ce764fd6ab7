#pragma once

#include <cstddef>
#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"
#include "braid/kernels/cpu/kv_cache.h"
#include "braid/ops/dual_chunks.h"

namespace braid::cpu {

// Causal attention of a batch of sequences over a paged KV cache, decode and prefill alike.
//
// Sequence s has n = q_start[s + 1] - q_start[s] queries, the last n of its kv_len[s] tokens: query
// i sits at position kv_len[s] - n + i and attends to the keys at positions (position - window,
// position], all of which are in the cache. Query head h uses KV head (h + head_offset) / group:
// head_offset is not zero where a rank's heads begin inside a group.
//   score = scale * q.k;  score = softcap * tanh(score / softcap) if softcap > 0
//   out[t, h] = sum_j softmax(score)_j v_j                      (FlashAttention-2, arXiv
//   2307.08691)
//
// Pages of which no query of the batch sees a key are never read. A sequence's result depends
// neither on the other sequences of the batch nor on the team, bit for bit; on different Isas it
// differs by rounding.
struct AttentionParams {
  const float* q = nullptr;  // [T, Hq * D], rows q_stride elements apart
  float* out = nullptr;      // [T, Hq * D], rows out_stride elements apart; may be q
  const int32_t* page_table =
      nullptr;                       // [S, P]: page p of sequence s holds positions [p * BS, ...)
  const int32_t* q_start = nullptr;  // [S + 1], counted from first_token on
  const int32_t* kv_len = nullptr;   // [S], at least the sequence's number of queries
  KvCache cache;                     // [NB, BS, Hkv, D]; D a multiple of 8, at most kMaxHeadDim
  int64_t first_token = 0;           // q_start's number for the first row of q and out
  int64_t sequences = 0;             // S
  int64_t max_pages = 0;             // P
  int64_t q_heads = 0;               // Hq
  int64_t group = 1;                 // query heads of a KV head
  int64_t head_offset = 0;
  int64_t q_stride = 0;
  int64_t out_stride = 0;
  float scale = 1.0f;
  float softcap = 0;                      // 0: none
  int64_t window = 0;                     // 0: none
  const ops::DualChunks* dual = nullptr;  // turns q and grows scale; null: plain attention
  const double* frequencies = nullptr;    // [rotary_dim / 2] of dual's rope
  std::byte* scratch = nullptr;  // attention_scratch_bytes(), 64-byte aligned, any contents
};

constexpr int64_t kMaxHeadDim = 640;  // latents of 512 and 64 rotated columns

// Scratch for attention() with these heads on a team with `threads`.
int64_t attention_scratch_bytes(int64_t q_heads, int64_t group, int64_t head_dim, int threads);

// Decode (one query): KV-bound, the KV range is split over the team. Prefill: compute-bound, blocks
// of queries are handed out as threads become free. At most two team barriers inside.
void attention(const AttentionParams& p, const Team& team, Isa isa = detected_isa());

}  // namespace braid::cpu
