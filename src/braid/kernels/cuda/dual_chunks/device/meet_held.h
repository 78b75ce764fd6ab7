#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/dual_chunks/device/turns.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// Queries of the op attention_state (ops/attention_state.h) as they meet each chunk of their keys,
// in device memory: query t meets chunk n as query n * T + t.
struct MeetHeldParams {
  TensorView q;                    // f32, bf16 or f16 [1, T, Hq, D]
  const int32_t* rows = nullptr;   // [T]
  const int32_t* begin = nullptr;  // [chunks + 1, T]: the chunks' first keys, and positions
  const int32_t* end = nullptr;    // [T]
  int64_t chunks = 1;
  int64_t met_chunks = 1;    // places for chunks; those behind the last chunk have no keys
  std::byte* met = nullptr;  // as q [met_chunks, T, Hq, D]; queries without keys stay as they are
  int32_t* met_rows = nullptr;   // [met_chunks * T], as the three inputs
  int32_t* met_begin = nullptr;  // likewise
  int32_t* met_end = nullptr;
  DualTurns dual;
};

// A launch; capturable. Fails with kUnsupported on other dtypes.
void meet_held(const MeetHeldParams& params, LaunchContext context);

// Loads the kernel on the current device: its first launch must not, while another rank waits.
void load_meet_held(DType dtype, int64_t head_dim);

}  // namespace braid::cuda
