#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/thinning/most_parts.h"
#include "braid/ops/thin_keys.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// The op thin_keys. Scores are products of tensor cores where q and k are bf16 or f16 and D is a
// multiple of 8, else sums in f32. Importances are f32 sums in a fixed order: equal inputs give
// equal bits. Parts are at most kMostThinnedParts.
struct ThinKeysParams {
  TensorView q;               // f32, bf16 or f16 [1, n, Hq, D], D at most 256
  TensorView k, v;            // as q [1, m, Hkv, D]
  TensorView probes;          // as q [1, p, Hq, D], where parts are probed
  TensorView scores;          // f32 [1, p, Hkv, 1], where parts have scores
  TensorView kept_k, kept_v;  // as q [1, rows, Hkv, D]
  TensorView order;           // i32 [1, order_rows, Hkv, 1], or absent
  const ops::ThinKeysAttrs* attrs = nullptr;
  std::byte* workspace = nullptr;  // device, thin_keys_workspace()
};

// Fail with kUnsupported, naming the unsupported operand.
void verify_scored_heads(std::string_view op, DType dtype, int64_t D);
void verify_thin_keys(const ops::ThinKeysAttrs& attrs, DType dtype, int64_t D);

// Asks the current device.
int64_t thin_keys_workspace(const ops::ThinKeysAttrs& attrs, int64_t kv_heads);

// Loads the kernels, the sort's kernels by sorting the workspace's present bytes; outside any
// capture, while no rank waits on a device.
void prepare_thin_keys(const ops::ThinKeysAttrs& attrs, DType dtype, int64_t kv_heads, int64_t D,
                       std::byte* workspace);

void thin_keys(const ThinKeysParams& params, LaunchContext context);

}  // namespace braid::cuda
