#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/kernels/cuda/pointwise/rope_table.h"
#include "braid/ops/rope_append.h"

namespace braid::cuda {

// The op rope_append: each head in q and k is normalized if it has a norm, and turned by its
// token's position; q' goes to y, k and v to the paged cache's row slots[t] (slots outside:
// nowhere). Computed in f32, rounded once. A single kernel, which also computes the ops rope
// (without k and v), kv_append (without q and attrs.rope.rotary_dim) and rope_sequence (one page).
// y may be q; no other operands may overlap.
struct RopeAppendParams {
  TensorView q;                     // f32 or bf16 [T, Hq * D], or absent
  TensorView k;                     // as q [T, Hkv * D], or absent; may be columns of q's matrix
  TensorView v;                     // as k
  TensorView positions;             // i32 [T], where rotary_dim > 0
  TensorView slots;                 // i32 [T] with k, or absent: token t has slot t
  TensorView cache_k;               // f32, f16 or bf16 [NB, BS, Hkv, D], with k
  TensorView cache_v;               // as cache_k
  TensorView q_norm;                // f32, f16 or bf16 [D], or absent: constant
  TensorView k_norm;                // likewise
  TensorView y;                     // f32 or bf16 [T, Hq * D], with q; bf16 if q is
  const uint64_t* turns = nullptr;  // device [rotary_dim / 2], rope_turns: constant
  ops::RopeAppendAttrs attrs;
  const int64_t* rows = nullptr;  // device: live rows
};

// For choose_rope. Fails as the launch does.
RopeDesc rope_append_desc(const RopeAppendParams& params);

void rope_append(const RopeAppendParams& params, const RopeConfig& config, LaunchContext context);

}  // namespace braid::cuda
