#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/latent/latent_config.h"
#include "braid/ops/latent_attention.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// The op latent_append. Device memory, the caller's.
struct LatentAppendParams {
  TensorView kv;                       // bf16 [T, R + Dr]
  TensorView norm;                     // any float [R], constant
  const int32_t* positions = nullptr;  // [T]
  const int32_t* slots = nullptr;      // [T]
  TensorView cache;                    // f32, f16 or bf16 [NB, BS, 1, R + Dr]
  const uint64_t* turns = nullptr;     // [Dr / 2], rope_turns: constant
  ops::LatentAppendAttrs attrs;
  const int64_t* rows = nullptr;  // live tokens; null: T
};
void latent_append(const LatentAppendParams& params, LaunchContext context);

// The middle part of latent_attention: sums of latents under the softmax of absorbed queries,
//   out[t, h] = sum over s of p_s c_s, p = softmax(scale (absorbed[t, h] . c_s + rope(q_r) .
//   k_r,s))
struct LatentParams {
  const void* q = nullptr;              // bf16 [T, H (Dn + Dr)], of which q_r is read
  const void* absorbed = nullptr;       // bf16 [T, H, R]
  const int32_t* positions = nullptr;   // [T]
  const void* cache = nullptr;          // [NB, BS, 1, R + Dr] of cache_dtype
  const int32_t* q_start = nullptr;     // [sequences + 1]
  const int32_t* kv_len = nullptr;      // [sequences]
  const int32_t* page_table = nullptr;  // [sequences, table_stride]
  const uint64_t* turns = nullptr;      // [Dr / 2]
  const int64_t* sequences = nullptr;   // device: how many are live
  void* out = nullptr;                  // bf16 [T, H, R]
  float* partial = nullptr;             // latent_workspace_bytes()
  DType cache_dtype = DType::bf16;
  int heads = 0, nope = 0, rope = 0, latent = 0;
  int page_size = 0, table_stride = 0;
  int tokens = 0, max_sequences = 0;  // capacities
  // Batch index of the first token in q, absorbed, positions and out.
  int first_token = 0;
  float scale = 1;
  float rope_factor = 1;
  bool interleaved = true;
};

// Allows the kernels their shared memory: once per device, outside of capture.
void prepare_latent_attention(const LatentDevice& device);
void latent_attention(const LatentParams& params, const LatentConfig& config,
                      LaunchContext context);

// out[h, r, d] = w[h, d, r], bf16. For k_b as [H, Dn, R], once when a plan is bound.
void transpose_heads(const void* w, void* out, int heads, int rows, int cols, cudaStream_t stream);

}  // namespace braid::cuda
