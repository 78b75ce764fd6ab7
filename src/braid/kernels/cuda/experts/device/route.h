#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/ops/route.h"

namespace braid::cuda {

// The op route. All memory is the device's and the caller's.
struct RouteParams {
  ops::RouteAttrs attrs;
  const float* logits = nullptr;    // [T, E]
  const float* bias = nullptr;      // [E], or null
  float* weight = nullptr;          // [T, k]
  int32_t* place = nullptr;         // [T, k]
  int32_t* token = nullptr;         // [T k]
  int32_t* begin = nullptr;         // [E + 1]
  int32_t* chosen = nullptr;        // [T, k] scratch; unused if route_in_one
  const int64_t* tokens = nullptr;  // live tokens; null: T
  int64_t* expert_rows = nullptr;   // becomes live tokens times k; may be null
  int T = 0;                        // capacity
  int E = 0;
};

// Whether one CTA chooses and sorts, in one launch: few choices. Else CTAs choose for some tokens
// each, and a second launch has a CTA for each expert to sort its rows.
bool route_in_one(int64_t T, int64_t k);

// Capturable; allocates nothing and waits for nothing.
void route(const RouteParams& params, LaunchContext context);

}  // namespace braid::cuda
