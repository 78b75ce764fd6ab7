#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/dual_chunks/device/turns.h"
#include "braid/ops/attention.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

constexpr int kMaxPlainHeadDim = 256;

// The op attention (ops/attention.h) for the head dimensions that no faster kernel knows, and a
// second opinion on those: a warp for each token and query head walks all keys. Device memory;
// shapes are capacities.
struct PlainAttentionParams {
  TensorView q;                        // f32 or bf16 [T, Hq * D]
  TensorView k_cache;                  // f32, f16 or bf16 [NB, BS, Hkv, D]
  TensorView v_cache;                  // as k_cache
  TensorView q_start;                  // i32 [S + 1]
  TensorView kv_len;                   // i32 [S]
  TensorView page_table;               // i32 [S, P]
  TensorView out;                      // as q
  const int64_t* sequences = nullptr;  // live
  ops::AttentionAttrs attrs;
  const uint64_t* turns = nullptr;  // with attrs.dual: device, rope_turns() of dual's RoPE
};

// Capturable. Fails with kUnsupported above kMaxPlainHeadDim and on other dtypes.
void plain_attention(const PlainAttentionParams& params, LaunchContext context);

}  // namespace braid::cuda
