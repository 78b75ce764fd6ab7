#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/thinning/paid_visits.h"
#include "braid/tensor/view.h"

namespace braid::cuda {

// The op paid_keys: products as those of thin_keys, sums in f32 in a fixed order.
struct PaidKeysParams {
  TensorView q;                                    // f32, bf16 or f16 [1, n, Hq, D], D at most 256
  std::array<TensorView, kMostPaidPairs> k, paid;  // as q [1, m, Hkv, D]; f32 [1, m, Hkv, 1]
  const PaidVisits* visits = nullptr;
  const ScoringRun* runs = nullptr;  // device copies of the visits' vectors
  const ScoringVisit* seen = nullptr;
  float scale = 1;
  std::byte* workspace = nullptr;  // device, paid_keys_workspace()
};

int64_t paid_keys_workspace(const PaidVisits& visits);

// Loads the kernels; outside any capture, while no rank waits on a device.
void prepare_paid_keys(DType dtype, int64_t D);

void paid_keys(const PaidKeysParams& params, LaunchContext context);

}  // namespace braid::cuda
