#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/decode/decode_config.h"

namespace braid::cuda {

// All pointers are device memory of the caller's; q, caches and out are 16-byte aligned.
struct DecodeParams {
  const void* q = nullptr;              // q_dtype [T, Hq * D], rows q_stride elements apart
  const void* k_cache = nullptr;        // cache_dtype [NB, BS, Hkv, D]
  const void* v_cache = nullptr;        // cache_dtype [NB, BS, Hkv, D]
  const int32_t* q_start = nullptr;     // [S + 1]
  const int32_t* kv_len = nullptr;      // [S], including this step's keys
  const int32_t* page_table = nullptr;  // [S, P]; entries past a sequence's keys are not read
  const int64_t* sequences = nullptr;   // live sequences <= S; null: S
  void* out = nullptr;                  // out_dtype [T, Hq * D], rows out_stride elements apart
  void* workspace = nullptr;  // config.workspace_bytes, 16-byte aligned, that no other launch in
                              // flight uses
  int64_t q_stride = 0;       // 0: Hq * D
  int64_t out_stride = 0;     // 0: Hq * D
  // With programmatic dependent launch a kernel runs beside earlier kernels until its wait. True
  // promises that q_start, kv_len, page_table, sequences and all keys except each sequence's new
  // keys (the last q_len) were written before the first kernel of the graph, or of the chain of
  // dependent launches, began: the kernel reads these before the wait. New keys and q are always
  // read after the wait.
  bool history_ready = false;
};

// Rows q_start[s]..q_start[s + 1] of each live sequence; the others stay untouched. One launch, no
// allocation, no synchronization, capturable; bitwise the same on repetition. Fails as `verify`
// does.
void decode_attention(const DecodeDesc& desc, const DecodeParams& params,
                      const DecodeConfig& config, LaunchContext context);

// Loads the kernel and allows the kernel's shared memory; once per device, outside capture.
void prepare_decode_attention(const DecodeDesc& desc, const DecodeConfig& config);

// Facts about the current device.
DecodeDevice decode_device();

}  // namespace braid::cuda
