#pragma once

#include <cstdint>

#include "braid/kernels/cpu/dispatch.h"
#include "braid/ops/dual_chunks.h"
#include "braid/tensor/dtype.h"

// The parts of attention(); a single thread each, compiled per Isa.
namespace braid::cpu {

// Keys and values of a sequence's KV head.
struct KvHead {
  const void* k = nullptr;         // [NB, BS, Hkv, D] of dtype, at the head
  const void* v = nullptr;         // [NB, BS, Hkv, D] of dtype, at the head
  DType dtype = DType::f32;        // f32, f16 or bf16
  const int32_t* pages = nullptr;  // [P]
  int64_t page_size = 0;           // BS
  int64_t row_stride = 0;          // Hkv * D elements
  int64_t head_dim = 0;            // D
};

// How q.k becomes the exponent of 2: s = q.k * scale, or cap * tanh(q.k * scale) with a soft cap,
// both with log2(e) in the outer factor.
struct ScoreSpec {
  float scale = 0;
  float cap = 0;  // 0: none
};

// A head's attention over some of its keys: out = o / l, and two states merge through m. In memory
// o[0 .. D), then m and l at kStateMax and kStateSum behind the padded D.
constexpr int64_t kStateMax = 0;
constexpr int64_t kStateSum = 1;
constexpr int64_t kStatePad = 16;
constexpr int64_t state_offset(int64_t head_dim) {
  return (head_dim + kStatePad - 1) / kStatePad * kStatePad;
}
constexpr int64_t state_floats(int64_t head_dim) {
  return state_offset(head_dim) + kStatePad;
}

// A query's heads of a KV head over keys [begin, end).
struct DecodeChunk {
  KvHead kv;
  ScoreSpec score;
  const float* q = nullptr;  // [heads, D] packed
  int heads = 0;
  int64_t begin = 0;
  int64_t end = 0;         // > begin
  bool resume = false;     // `state` holds earlier keys: add to them
  bool cold = false;       // nobody has asked for these keys yet
  int64_t next_end = 0;    // keys from `end` to here come later: fetched into the cache meanwhile
  float* state = nullptr;  // [heads, state_floats(D)] f32
};
BRAID_DECLARE_PER_ISA(void attention_decode_chunk(const DecodeChunk& c))

// out[h] = the merge of state[0 .. chunks)[h], in order.
struct DecodeMerge {
  const float* state = nullptr;  // [chunks, Hq, state_floats(D)], at the first head
  int64_t chunk_stride = 0;      // floats
  int64_t chunks = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  float* out = nullptr;  // [heads, D] packed
};
BRAID_DECLARE_PER_ISA(void attention_decode_merge(const DecodeMerge& m))

// A block of consecutive queries in a sequence, with the query heads of a KV head.
struct PrefillBlock {
  KvHead kv;
  ScoreSpec score;
  const float* q = nullptr;  // [queries, heads * D], rows q_stride apart
  float* out = nullptr;      // [queries, heads * D], rows out_stride apart
  int64_t q_stride = 0;
  int64_t out_stride = 0;
  int64_t queries = 0;
  int64_t heads = 0;
  int64_t position = 0;  // of the first query
  int64_t window = 0;    // 0: none
  const ops::DualChunks* dual = nullptr;
  const double* frequencies = nullptr;
  float* scratch = nullptr;  // prefill_scratch_floats(queries * heads, D), 64-byte aligned
};
BRAID_DECLARE_PER_ISA(void attention_prefill_block(const PrefillBlock& b))

constexpr int64_t kPrefillRows = 192;  // (query, head) rows of a block, for groups with fewer heads
constexpr int64_t kPrefillKeys = 64;   // keys converted at a time
constexpr int64_t kTileRows = 6;

constexpr int64_t prefill_scratch_floats(int64_t rows, int64_t head_dim) {
  const int64_t padded_rows = (rows + kTileRows - 1) / kTileRows * kTileRows;
  const int64_t padded_dim = state_offset(head_dim);
  return padded_rows * (2 * padded_dim + 2 * kStatePad) + 2 * kPrefillKeys * padded_dim +
         kTileRows * kPrefillKeys;
}

}  // namespace braid::cpu
