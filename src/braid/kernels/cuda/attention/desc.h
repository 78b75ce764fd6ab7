#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "braid/tensor/dtype.h"

// Segment attention: each Q segment attends to a run of KV segments, and the softmax runs over all
// of them as if they were one (StreamFusion, Algorithm 2 and appendix C):
//   s = scale q k^T over the visible keys, m = max s, l = sum e^(s - m), O' = sum e^(s - m) v
//   (O', l, m) of two sets of keys merge to  m = max(m1, m2),  l = l1 e^(m1 - m) + l2 e^(m2 - m),
//   O' likewise; finalize writes O = O' / l and lse = m + ln l.
// A query at position p sees the keys at positions [p - window_left, p + window_right].
namespace braid::cuda {

constexpr int kUnlimited = -1;     // for window_left, window_right
constexpr int kMaxQSegments = 20;  // 8 ranks with two runs of rows each, a prefix, some cut runs
constexpr int kMaxKvSegments = 20;

// Properties common to all segments of a call.
struct AttentionDesc {
  DType dtype = DType::bf16;  // q, k, v, o: bf16 or f16
  int batch = 1;
  int num_q_heads = 0;
  int num_kv_heads = 0;  // divides num_q_heads; query head h reads KV head h / (Hq / Hkv)
  int head_dim_qk = 0;   // 64, 96, 128, 192 or 256
  int head_dim_v = 0;    // = head_dim_qk, or 128 with head_dim_qk 192
  float scale = 0;       // > 0
  int window_left = kUnlimited;
  int window_right = kUnlimited;   // 0 is causal
  int page_size = 0;               // 0: contiguous KV; else tokens per page, 16..256
  DType state_dtype = DType::f32;  // O': f32 or bf16; l and m are f32
  bool load_state = false;         // merge with the state in the segments
  bool finalize = true;            // write o and lse; else write the state back
};

// Strides are in elements; the innermost dimension is contiguous. Pointers of q, k and v are
// 16-byte aligned and their strides multiples of 8 elements. Memory is the caller's.
struct Strides {
  int64_t batch = 0;
  int64_t token = 0;
  int64_t head = 0;
};

struct QTensor {
  const void* q = nullptr;   // dtype [B, L, Hq, Dqk], or [T, Hq, Dqk] with `starts`
  void* o = nullptr;         // dtype [B, L, Hq, Dv], or [T, Hq, Dv]; written if finalize
  float* lse = nullptr;      // [B, Hq, L], or [Hq, T]; may be null; written if finalize
  void* state_o = nullptr;   // state_dtype, shaped as o
  float* state_l = nullptr;  // [B, Hq, L], or [Hq, T]
  float* state_m = nullptr;  // [B, Hq, L], or [Hq, T]; natural logarithm's units; -inf: no key yet,
                             // and state_o and state_l may hold anything
  Strides q_stride;
  Strides o_stride;
  Strides state_stride;  // for state_o
  Strides row_stride;    // for lse, state_l and state_m: {batch, token (usually 1), head}
  const int32_t* starts =
      nullptr;  // device [B + 1], optional: sequence b is rows starts[b]..starts[b + 1]
  const int32_t* offsets = nullptr;  // device [B], optional: added to `offset`
  int64_t rows = 0;                  // with `starts`: T
  int32_t length = 0;                // L; with `starts` the longest sequence
  int32_t offset = 0;                // position of token 0
  int32_t kv_begin = 0;              // KV segments [kv_begin, kv_end) are seen
  int32_t kv_end = 0;
  int32_t stage = 0;  // as of KvTensor, and at most the last one's: when the queries arrive
  int32_t early = 0;  // 1: results are wanted first (AttentionArrivals::early)
};

struct KvTensor {
  const void* k = nullptr;  // dtype [B, S, Hkv, Dqk], or pages [NB, BS, Hkv, Dqk]
  const void* v = nullptr;  // dtype [B, S, Hkv, Dv], or pages [NB, BS, Hkv, Dv]
  Strides k_stride;         // paged: batch is the stride between pages
  Strides v_stride;
  const int32_t* lengths = nullptr;     // device [B], optional: the lengths, each <= length
  const int32_t* page_table = nullptr;  // device [B, page_table_stride]; page ids < num_pages
  int32_t page_table_stride = 0;
  int32_t num_pages = 0;  // NB
  int32_t length = 0;     // S; paged: at most page_table_stride * BS
  int32_t offset = 0;     // position of key 0
  int32_t stage = 0;      // 0: present before the call; otherwise arrives (AttentionArrivals)
};

struct AttentionParams {
  std::span<const QTensor> q;
  std::span<const KvTensor> kv;
};

// Whether the call starts from a state or leaves one.
bool carries_state(const AttentionDesc& desc);
// Whether keys (and perhaps queries) come in stages while the call runs.
bool keys_arrive(const AttentionParams& params);

// Refuses calls without a kernel: kUnsupported or kInvalidArgument, naming the field, the value and
// the limit.
void verify(const AttentionDesc& desc, const AttentionParams& params);

// "bf16 B1 Hq24 Hkv24 D128 full"
std::string to_string(const AttentionDesc& desc);

}  // namespace braid::cuda
