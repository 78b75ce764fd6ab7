#pragma once

#include <cstdint>
#include <string>

#include "braid/ops/attention.h"

// Paged attention of few new tokens per sequence (ops/attention.h, op `attention`): every key is
// read once for all query heads that share it, and the keys of all sequences are dealt evenly to
// all SMs, so that a step takes as long as its bytes do, however the lengths differ.
namespace braid::cuda {

constexpr int kMaxDecodeSequences = 1024;
constexpr int kMaxKvHeads = 4096;

// What is fixed when a step is captured. Capacities bound what device memory says at run time.
struct DecodeDesc {
  ops::AttentionAttrs attrs;
  DType q_dtype = DType::bf16;      // bf16 or f32 (rounded to cache_dtype)
  DType cache_dtype = DType::bf16;  // bf16 or f16
  DType out_dtype = DType::bf16;    // bf16 or f32
  int num_q_heads = 0;              // Hq
  int num_kv_heads = 0;             // Hkv, of the cache
  int page_size = 0;                // BS, 16..256
  int table_stride = 0;             // P, page-table entries of a sequence
  int max_sequences = 0;            // S, at most kMaxDecodeSequences
  int max_tokens = 0;               // T
};

// Refuses what the kernel does not compute: kUnsupported or kInvalidArgument, naming the field, its
// value and what is allowed.
void verify(const DecodeDesc& desc);

// KV heads that some query head reads: [first, first + count).
struct KvHeads {
  int first;
  int count;
};
KvHeads kv_heads_read(const DecodeDesc& desc);

// "bf16 S16 T16 Hq32 Hkv8 D128 page64"
std::string to_string(const DecodeDesc& desc);

}  // namespace braid::cuda
