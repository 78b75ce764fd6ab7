#pragma once

#include "braid/kernels/cuda/decode/device/launch.h"
#include "braid/ops/attention_state.h"
#include "braid/tensor/view.h"

// The ops attention_state and merge_states (ops/attention_state.h). All memory is the device's, and
// all launches are capturable.
namespace braid::cuda {

struct StateParams {
  TensorView q;                    // bf16 or f32 [1, T, Hq, D]
  TensorView k_cache, v_cache;     // bf16, f16 or f32 [NB, BS, Hkv, D]
  TensorView slots;                // i32 [S, K]
  const int32_t* rows = nullptr;   // [T]
  const int32_t* begin = nullptr;  // [T]
  const int32_t* end = nullptr;    // [T]
  float* out = nullptr;            // [T, Hq, D + 2], 16-byte aligned
  void* workspace = nullptr;       // the decode kernel's, as in DecodeParams
  bool history_ready = false;      // all but q and this step's keys is there before the launch
  ops::AttentionAttrs attrs;
};

// The call as the decode kernel sees it: a sequence with a single token for each query. The
// description's choice() fails with kUnsupported for calls outside the decode kernel.
DecodeDesc state_desc(const ops::AttentionAttrs& attrs, const ValueType& q, const ValueType& cache,
                      const ValueType& slots);

// By the decode kernel, whose config is chosen for state_desc(): the keys of all queries are dealt
// to all SMs. The result has the same bits every time.
void attention_states(const StateParams& params, const DecodeConfig& config, LaunchContext context);
// Loads the kernel and allows its shared memory; once per device, outside any capture.
void prepare_attention_states(const DecodeDesc& desc);

// For all other head dimensions and dtypes, and as a second opinion: a warp for each query and head
// sees key after key. Fails with kUnsupported above kMaxPlainHeadDim.
void plain_states(const StateParams& params, LaunchContext context);

struct MergeStatesParams {
  TensorView states;  // f32 [1, parts * n, Hq, D + 2]: part p has the rows from p * n on
  // States of queries with a single part, f32 [N, Hq, D + 2]: rows [n, N) become results of the
  // same rows, and rows before n are not read. Null: N = n.
  const float* own = nullptr;
  TensorView out;                    // f32 or bf16 [N, Hq * D], or [1, N, Hq, D]
  const int64_t* queries = nullptr;  // live rows of out; null: all
  int parts = 1;
  bool finish = true;  // false: out is the merged states, f32 [N, Hq * (D + 2)]
};
void merge_states(const MergeStatesParams& params, LaunchContext context);

// States of segment attention, merged over `parts` and packed.
struct PackStatesParams {
  TensorView sums;           // O' f32 [1, parts * n, Hq, D]
  const float* l = nullptr;  // [parts * n, Hq]
  const float* m = nullptr;  // likewise
  TensorView out;            // f32 [1, n, Hq, D + 2]
  int parts = 1;
};
void pack_states(const PackStatesParams& params, LaunchContext context);

}  // namespace braid::cuda
