#pragma once

#include <cstddef>
#include <cstdint>

#include "braid/backend/cpu/team.h"
#include "braid/kernels/cpu/isa.h"
#include "braid/kernels/cpu/kv_cache.h"
#include "braid/ops/dual_chunks.h"

// Attention over the keys on a rank, and the merge of several ranks' results: ops/attention_state.h
// defines both.
namespace braid::cpu {

struct AttentionStateParams {
  const float* q = nullptr;        // [T, Hq, D]
  KvCache cache;                   // [NB, BS, Hkv, D]
  const int32_t* slots = nullptr;  // [S, K]
  const int32_t* rows = nullptr;   // [T] sequence of each query
  const int32_t* begin = nullptr;  // [T]
  const int32_t* end = nullptr;    // [T]
  // Optional: `begin` then has rows with the first keys of all `chunks`, and behind these a row
  // with the queries' positions.
  const ops::DualChunks* dual = nullptr;
  const double* frequencies = nullptr;  // [rotary_dim / 2] of dual's rope
  int64_t chunks = 1;
  float* out = nullptr;   // [T, Hq, D + 2]
  int64_t queries = 0;    // T
  int64_t row_slots = 0;  // K
  int64_t q_heads = 0;    // Hq = Hkv * group
  int64_t group = 1;
  float scale = 1;
  float softcap = 0;             // 0: none
  std::byte* scratch = nullptr;  // attention_state_scratch_bytes(), 64-byte aligned, any contents
};

int64_t attention_state_scratch_bytes(int64_t q_heads, int64_t head_dim);

// The keys of one query after another are divided over the team: two barriers a query. The result
// does not depend on the team.
void attention_state(const AttentionStateParams& p, const Team& team, Isa isa = detected_isa());

struct MergeStatesParams {
  const float* states = nullptr;  // [parts, room, Hq, D + 2]
  const float* own = nullptr;     // [queries, Hq, D + 2], rows from `room` on are read
  float* out = nullptr;           // [queries, Hq, D]
  int64_t parts = 0;
  int64_t room = 0;
  int64_t queries = 0;  // at most room, if own is null
  int64_t heads = 0;    // Hq
  int64_t head_dim = 0;
};
void merge_states(const MergeStatesParams& p, const Team& team);

struct PackStatesParams {
  const float* sums = nullptr;  // O' [parts, rows, D]
  const float* l = nullptr;     // [parts, rows]
  const float* m = nullptr;     // [parts, rows]
  float* out = nullptr;         // [rows, D + 2]
  int64_t parts = 0;
  int64_t rows = 0;  // queries * Hq
  int64_t head_dim = 0;
};
void pack_states(const PackStatesParams& p, const Team& team);

}  // namespace braid::cpu
