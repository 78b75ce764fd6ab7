#pragma once

#include <cstdint>
#include <string>

#include "braid/ops/attention.h"

// Paged attention of few new tokens per sequence (ops/attention.h, op `attention`). Every key is
// read once for all its query heads, and the keys of all sequences are dealt evenly to all SMs: a
// step takes as long as the bytes take, however lengths differ.
namespace braid::cuda {

constexpr int kMaxDecodeSequences = 1024;
constexpr int kMaxKvHeads = 4096;

// Facts fixed at a step's capture. Capacities bound the contents of device memory at run time.
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

// Refuses calls outside the kernel: kUnsupported or kInvalidArgument, naming the field, the value
// and the limit.
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
