#pragma once

#include <cuda.h>

#include "braid/kernels/cuda/attention/device/launch.h"
#include "braid/tensor/dtype.h"

namespace braid::cuda {

// An item that a CTA has looked at and not finished.
struct HeldItem {
  int32_t index;
  int32_t run;         // first run of keys still to do
  int32_t stage;       // the run's arrival number
  int32_t last_stage;  // when the last does
  int32_t begun;       // 1: has left sums
};
static_assert(sizeof(HeldItem) <= kHeldItemBytes);

// The Hopper kernel's argument. Tensor maps, innermost dimension first:
//   q [Dqk, pack, rows, heads / pack, B], boxes of 64 columns x 64 rows
//   k, v [D, tokens, Hkv, B] or pages [D, BS, Hkv, NB], boxes of 64 columns x kv_box_rows; for
//   tiles over several segments of a run, also boxes of kPartRows and of kKeyPiece rows
struct HopperParams {
  CUtensorMap q_map[kMaxQSegments];
  CUtensorMap k_map[3][kMaxKvSegments];
  CUtensorMap v_map[3][kMaxKvSegments];
  AttentionPlan plan;
  int32_t kv_box_rows;
  int32_t* counters;  // [3]: items handed out, finished CTAs, early items handed out
  // With arriving keys: [3], as in AttentionArrivals; each CTA's places for left items, and for
  // their sums.
  uint32_t* arrived;
  float4* sums;
  HeldItem* held;
  int32_t places;
  int32_t early_places;  // the last ones, for early items
  int32_t last_stage;
  uint32_t timeout_ms;   // for a wait for the next stage
  EarlyWords* early;     // AttentionArrivals::early
  int32_t early_begin;   // early items begin here
  uint32_t early_warps;  // warps that write early items' rows, counted per item; 0: not requested
};
static_assert(sizeof(HopperParams) <= 32764);

// Fills the tensor maps.
void make_tensor_maps(const AttentionDesc& desc, const AttentionConfig& config,
                      HopperParams& params);

// Row `kVariant` of kHopperVariants; an instance per row and dtype, each in a separate translation
// unit.
template <DType kDType, int kVariant>
void launch_hopper(const HopperParams& params, int split, int num_sms, cudaStream_t stream);

}  // namespace braid::cuda
